"""How fast whole sequences get to an update: IMPALA's through a queue, R2D2's out of replay. Part of `families`."""

import argparse
import itertools

import numpy as np
import torch
from torch import Tensor

from benchmarks.chunks import ATARI, noise_chunks
from benchmarks.harness import Comparison, Work, compare_processor_time
from benchmarks.works import CPU, learner
from rainbow_iqn_apex.args import parse
from rainbow_iqn_apex.memory.chunk import ChunkId
from rainbow_iqn_apex.memory.queue import Queue
from rainbow_iqn_apex.memory.replay import Replay

UNROLLS = 32  # of a batch from the queue
SEQUENCES = 64  # of a batch from replay
QUEUED_WANTED = 100_000  # rows a second
SAMPLE_WANTED = 0.8  # least ratio to the faster copy of as many frames


def compare_sequences(args: argparse.Namespace) -> list[Comparison]:
    """Compare the queue and the sampling of sequences with bare copies of their frames."""
    batches, sequences = (2, SEQUENCES) if args.quick else (20, 500)  # more than caches hold
    queued = _queue(batches, args)
    rate = queued.rates[-1].median
    print(f"through the queue: {rate:,.0f} rows/s, wanted {QUEUED_WANTED:,}", end="\n\n")
    return [queued, _sampling(sequences, args)]


def _queue(batches: int, args: argparse.Namespace) -> Comparison:
    """Compare how many rows that may be learned from come in and out again, a second."""
    spec = learner(parse(["--agent", "impala"], "sequences", "")).spec
    chunks = noise_chunks(spec, batches * UNROLLS)
    queue = Queue(spec, UNROLLS * spec.period, UNROLLS, torch.Generator().manual_seed(1), CPU)
    batch = np.empty((spec.window, UNROLLS, 84, 84), np.uint8)
    given = [chunks[start : start + UNROLLS] for start in range(0, len(chunks), UNROLLS)]
    turns, others = itertools.cycle(given), itertools.cycle(given)

    def copy() -> None:
        for number, chunk in enumerate(next(turns)):
            batch[:, number] = chunk.rows["obs"]

    def ours() -> None:
        for number, chunk in enumerate(next(others)):
            queue.add(ChunkId(0, number), chunk)
        queue.sample(UNROLLS)

    works: dict[str, Work] = {"copy of the frames alone": copy, "queue": ours}
    rows = UNROLLS * spec.length
    return compare_processor_time(
        f"queue, batches of {UNROLLS} x {spec.length} rows", "rows/s", works, args, per_call=rows
    )


def _sampling(sequences: int, args: argparse.Namespace) -> Comparison:
    spec = learner(parse(["--agent", "r2d2"], "sequences", "")).spec
    chunks = noise_chunks(spec, sequences)
    replay = Replay(spec, ATARI, sequences * spec.period, torch.Generator().manual_seed(1), CPU)
    for number, chunk in enumerate(chunks):
        replay.add(ChunkId(0, number), chunk)
    frames, generator = replay.ring.rows["obs"], torch.Generator().manual_seed(2)
    blocks = frames.view(-1, spec.window, *frames.shape[1:])
    rows = torch.arange(spec.window).unsqueeze(1)

    def drawn() -> Tensor:
        return torch.randint(sequences, (SEQUENCES,), generator=generator)

    def ours() -> tuple[Tensor, ...]:
        batch = replay.sample(SEQUENCES, 0.6)
        assert batch.weights is not None
        return *(batch.rows[name] for name in batch.rows), *batch.state.values(), batch.weights

    works: dict[str, Work] = {
        "blocks alone": lambda: blocks.index_select(0, drawn()),
        "rows alone, time-major": lambda: frames.index_select(0, (drawn() * spec.window + rows).flatten()),
        "ours, all fields": ours,
    }
    name = f"sample {SEQUENCES} x {spec.window} rows"
    return compare_processor_time(name, "1/s", works, args, wanted={"ours, all fields": SAMPLE_WANTED})

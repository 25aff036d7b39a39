"""How fast replay samples and takes new priorities, against a bare gather of its frames and against other replays.

Like is compared with like: a sample is, for each, the stack of 4 frames at a row, the stack 3 steps later, the action
and the weight; ours and cpprb's have the return of the 3 steps, too. The gather copies as many frames and nothing else.
All run on one thread, as cpprb can do no other. `Replay` holds a million rows, which take 9 GB of memory; the peers
(`replay_peers`) hold fewer, beside which the same is measured of a `Replay` of that size.
"""

import argparse
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from benchmarks.chunks import ATARI, SPEC, noise_chunks
from benchmarks.harness import Comparison, Work, compare, one_thread
from benchmarks.replay_peers import NumpyTree, Peer, peers
from rainbow_iqn_apex.memory.batch import Batch, Transitions
from rainbow_iqn_apex.memory.chunk import ChunkId
from rainbow_iqn_apex.memory.fast.ring import RingRows
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.memory.rows import Array

BETA = 0.5
PREPARED = 64  # batches whose priorities are updated in turn
STEPS, GAMMA, CLIP = 3, 0.99, 1.0  # of the returns
SAMPLE_WANTED = {32: 0.8, 512: 0.95}  # least ratio of a batch of transitions to the gather
UPDATE_WANTED = 10.0  # least ratio of `Replay.learned` to a batch of transitions


@dataclass(frozen=True)
class Replays:
    """Holds a full replay and others to compare it with."""

    ours: Replay
    small: Replay  # ours with as many rows as the peers
    peers: list[Peer]
    fewer: str  # what to add to the names of those with fewer rows
    turns: int  # samples prepared for a work


def filled(rows: int) -> Replay:
    """Return a replay full of one random chunk, with random priorities."""
    (chunk,), generator = noise_chunks(SPEC, 1), np.random.default_rng(1)
    replay = Replay(SPEC, ATARI, rows, torch.Generator().manual_seed(1), torch.device("cpu"))
    for sequence in range(replay.slots):
        priorities = generator.random(SPEC.samples).astype(np.float32)
        replay.add(ChunkId(0, sequence), replace(chunk, priorities=priorities))
    return replay


def gather(replay: Replay, batch_size: int, turns: int) -> Work:
    """Return a work that copies the frames of both stacks at random rows and nothing else."""
    frames = replay.ring.rows["obs"]  # the same memory: a ring of its own would take 8 GB more
    generator = torch.Generator().manual_seed(1)
    first = torch.randint(len(frames) - SPEC.sample_window, (turns // batch_size, batch_size, 1), generator=generator)
    index = (first + torch.arange(SPEC.stack)).flatten(1)  # [turns, B * S]
    indices = itertools.cycle(zip(index, index + STEPS, strict=True))

    def work() -> list[Tensor]:
        stacks = [frames.index_select(0, rows) for rows in next(indices)]
        return [stack.view(batch_size, SPEC.stack, 84, 84) for stack in stacks]  # each [B, S, 84, 84]

    return work


def our_sample(replay: Replay, batch_size: int) -> Work:
    """Return a work that draws a batch and cuts its transitions, as an update does."""

    def work() -> tuple[Batch, Transitions]:
        batch = replay.sample(batch_size, BETA)
        assert isinstance(batch.rows, RingRows)
        return batch, batch.rows.transitions(STEPS, GAMMA, CLIP)

    return work


def our_update(replay: Replay, batch_size: int) -> Work:
    """Return a work that gives new priorities to prepared batches, in turn."""
    batch, shape = replay.sample(batch_size, BETA), (PREPARED, batch_size)
    indices = torch.randint(replay.slots * SPEC.samples, shape, generator=replay.generator)
    generations = indices // SPEC.samples  # as `filled` has it
    batches = [batch._replace(indices=a, generations=b) for a, b in zip(indices, generations, strict=True)]
    turns = itertools.cycle(zip(batches, torch.rand(shape, generator=replay.generator), strict=True))
    return lambda: replay.learned(*next(turns))


def other_update(update: Callable[[Array, Array], object], places: Sequence[Array]) -> Work:
    """Return the same for another replay, whose batches have these places."""
    priorities = np.random.default_rng(1).random((len(places), len(places[0])))
    turns = itertools.cycle(zip(places, priorities, strict=True))
    return lambda: update(*next(turns))


def copying(replays: Replays, args: argparse.Namespace) -> Comparison:
    """Compare the gigabytes a second of a plain copy, the physical limit, and of the gather."""
    batch_size, gathers = 512, 4
    source = torch.ones(gathers * batch_size * 2 * SPEC.stack * 84 * 84, dtype=torch.uint8)
    target = torch.empty_like(source)
    one = gather(replays.ours, batch_size, replays.turns)
    works: dict[str, Work] = {
        f"copy of {len(source) / 1e6:.0f} MB": lambda: target.copy_(source),
        f"{gathers} gathers of {batch_size}": lambda: [one() for _ in range(gathers)],
    }
    return compare("copying", "GB/s", works, args, per_call=len(source) / 1e9)


def sampling(replays: Replays, batch_size: int, args: argparse.Namespace) -> Comparison:
    """Compare batches of transitions a second, with their weights."""
    works: dict[str, Work] = {
        "gather alone": gather(replays.ours, batch_size, replays.turns),
        "ours": our_sample(replays.ours, batch_size),
        f"ours{replays.fewer}": our_sample(replays.small, batch_size),
    }
    works |= {f"{peer.name}{replays.fewer}": partial(peer.sample, batch_size) for peer in replays.peers}
    return compare(f"sample {batch_size}", "1/s", works, args, wanted={"ours": SAMPLE_WANTED[batch_size]})


def updating(replays: Replays, batch_size: int, args: argparse.Namespace) -> Comparison:
    """Compare updates of the priorities of a batch a second."""
    leaves = replays.ours.slots * SPEC.samples
    places = np.random.default_rng(1).integers(leaves, size=(PREPARED, batch_size))
    works: dict[str, Work] = {
        "ours, sample": our_sample(replays.ours, batch_size),
        "ours, update_priorities": our_update(replays.ours, batch_size),
        "NumPy sum tree": other_update(NumpyTree(leaves).update, [*places]),
        f"ours{replays.fewer}": our_update(replays.small, batch_size),
    }
    for peer in replays.peers:
        drawn = [peer.sample(batch_size) for _ in range(PREPARED)]
        works[f"{peer.name}{replays.fewer}"] = other_update(peer.update, drawn)
    return compare(f"update {batch_size}", "1/s", works, args, wanted={"ours, update_priorities": UPDATE_WANTED})


def measure(args: argparse.Namespace) -> list[Comparison]:
    """Compare copying, sampling and updates, on one thread."""
    # A peer that stores a frame twice has no room for more rows beside ours. Caches do not hold the turns' frames.
    rows, fewer, turns = (4000, 2000, 1024) if args.quick else (1_000_000, 100_000, 65_536)
    with one_thread():
        replays = Replays(filled(rows), filled(fewer), peers(fewer), f", {fewer:_} rows".replace("_", " "), turns)
        found = [copying(replays, args)]
        found += [sampling(replays, batch_size, args) for batch_size in SAMPLE_WANTED]
        return found + [updating(replays, batch_size, args) for batch_size in SAMPLE_WANTED]

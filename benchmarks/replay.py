"""How fast replay samples and takes new priorities, against a bare gather of its frames and against other replays.

    python -m benchmarks.replay

A sample is a window of 7 rows: a stack of 4 frames, the 3 steps of the return, and the stack after them. `Replay` holds
a million rows; the peers (`replay_peers`) hold fewer, beside which the same is measured of a `Replay` of that size.
"""

import argparse
import itertools
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness import SLICE_S, Comparison, Work, compare, run
from benchmarks.replay_peers import NumpyTree, Peer, peers
from memory.chunk import Chunk, ChunkId, ChunkSpec
from memory.environment_spec import Discrete, EnvironmentSpec, Field
from memory.replay import Replay
from memory.rows import StepType

SPEC = ChunkSpec(
    stack=4, burn_in=0, length=64, bootstrap_rows=3, period=64, sample_length=1
)  # of the agents by default
FRAME = Field((84, 84), "uint8")
ATARI = EnvironmentSpec(FRAME, Discrete(18))
BETA = 0.5
PREPARED = 64  # batches whose priorities are updated in turn
# Least ratio of `Replay.sample` to the gather. Where they were set the gathers took 0.089 and 1.08 ms, and 8500 and
# 850 samples a second were wanted.
SAMPLE_WANTED = {32: 0.089 / (1000 / 8500), 512: 1.08 / (1000 / 850)}
UPDATE_WANTED = 10.0  # least ratio of `Replay.update_priorities` to `Replay.sample`


@dataclass(frozen=True)
class Sizes:
    """How much is stored, and for how long each work runs in a repeat."""

    rows: int = 1_000_000
    peer_rows: int = 100_000  # a replay that stores a frame twice has no room for more beside ours
    turns: int = 65_536  # samples prepared for a work: their frames are more than caches hold
    slice_s: float = SLICE_S


QUICK = Sizes(rows=4000, peer_rows=2000, turns=1024, slice_s=0.02)


@dataclass(frozen=True)
class Replays:
    """A full replay to compare with others."""

    ours: Replay
    small: Replay  # ours with as many rows as the peers
    peers: list[Peer]
    fewer: str  # what to add to the names of those with fewer rows


def filled(rows: int) -> Replay:
    """A replay full of one random chunk, with random priorities."""
    generator = np.random.default_rng(1)
    arrays = {
        name: generator.integers(100, size=(SPEC.window, *field.shape)).astype(field.dtype)
        for name, field in SPEC.row_fields(ATARI).items()
    }
    arrays["step_type"][:] = StepType.MID
    replay = Replay(SPEC, ATARI, rows, torch.Generator().manual_seed(1), torch.device("cpu"))
    for sequence in range(replay.slots):
        priorities = generator.random(SPEC.samples).astype(np.float32)
        replay.add(ChunkId(0, sequence), Chunk(env=0, version=0, rows=arrays, state={}, priorities=priorities))
    return replay


def gather(replay: Replay, batch_size: int, turns: int) -> Work:
    """Copies frames of random windows and nothing else: what a sample takes at least."""
    frames = replay._rows["obs"]  # the same memory: a ring of its own would take 8 GB more
    generator = torch.Generator().manual_seed(1)
    first = torch.randint(len(frames) - SPEC.sample_window, (turns // batch_size, 1, batch_size), generator=generator)
    index = first + torch.arange(SPEC.sample_window)[:, None]  # [turns, T, B]
    indices = itertools.cycle(index.flatten(1).unbind())  # each [T * B]

    def work() -> Tensor:
        return frames.index_select(0, next(indices)).reshape(SPEC.sample_window, batch_size, *FRAME.shape)

    return work


def our_update(replay: Replay, batch_size: int) -> Work:
    """Gives new priorities to prepared batches, in turn."""
    batch, shape = replay.sample(batch_size, BETA), (PREPARED, batch_size)
    indices = torch.randint(replay.slots * SPEC.samples, shape, generator=replay.generator)
    generations = indices // SPEC.samples  # as `filled` has it
    batches = [batch._replace(indices=a, generations=b) for a, b in zip(indices, generations, strict=True)]
    turns = itertools.cycle(zip(batches, torch.rand(shape, generator=replay.generator), strict=True))
    return lambda: replay.update_priorities(*next(turns))


def peer_update(peer: Peer, batch_size: int) -> Work:
    """The same for a peer."""
    places = [peer.sample(batch_size) for _ in range(PREPARED)]
    turns = itertools.cycle(zip(places, np.random.default_rng(1).random((PREPARED, batch_size)), strict=True))
    return lambda: peer.update(*next(turns))


def tree_update(leaves: int, batch_size: int) -> Work:
    """The same for a plain sum tree."""
    generator = np.random.default_rng(1)
    tree = NumpyTree(leaves)
    places = generator.integers(leaves, size=(PREPARED, batch_size))
    turns = itertools.cycle(zip(places, generator.random((PREPARED, batch_size)), strict=True))
    return lambda: tree.update(*next(turns))


def copying(replay: Replay, sizes: Sizes, repeats: int) -> Comparison:
    """Gigabytes a second of a plain copy, the physical limit, and of the gather."""
    batch_size, gathers = 512, 4
    source = torch.ones(gathers * batch_size * SPEC.sample_window * 84 * 84, dtype=torch.uint8)
    target = torch.empty_like(source)
    one = gather(replay, batch_size, sizes.turns)
    works: dict[str, Work] = {
        f"copy of {len(source) / 1e6:.0f} MB": lambda: target.copy_(source),
        f"{gathers} gathers of {batch_size}": lambda: [one() for _ in range(gathers)],
    }
    return compare("copying", "GB/s", works, per_call=len(source) / 1e9, repeats=repeats, slice_s=sizes.slice_s)


def sampling(replays: Replays, batch_size: int, sizes: Sizes, repeats: int) -> Comparison:
    """Samples a second, with their weights."""
    name = f"sample {batch_size}"
    works: dict[str, Work] = {
        "gather alone": gather(replays.ours, batch_size, sizes.turns),
        "ours": lambda: replays.ours.sample(batch_size, BETA),
        f"ours{replays.fewer}": lambda: replays.small.sample(batch_size, BETA),
    }
    works |= {f"{peer.name}{replays.fewer}": partial(peer.sample, batch_size) for peer in replays.peers}
    wanted = {"ours": SAMPLE_WANTED[batch_size]}
    return compare(name, "1/s", works, repeats=repeats, wanted=wanted, slice_s=sizes.slice_s)


def updating(replays: Replays, batch_size: int, sizes: Sizes, repeats: int) -> Comparison:
    """Updates of the priorities of a batch a second."""
    name = f"update {batch_size}"
    works: dict[str, Work] = {
        "ours, sample": lambda: replays.ours.sample(batch_size, BETA),
        "ours, update_priorities": our_update(replays.ours, batch_size),
        "NumPy sum tree": tree_update(sizes.rows, batch_size),
        f"ours{replays.fewer}": our_update(replays.small, batch_size),
    }
    works |= {f"{peer.name}{replays.fewer}": peer_update(peer, batch_size) for peer in replays.peers}
    wanted = {"ours, update_priorities": UPDATE_WANTED}
    return compare(name, "1/s", works, repeats=repeats, wanted=wanted, slice_s=sizes.slice_s)


def measure(args: argparse.Namespace) -> list[Comparison]:
    """Compare copying, sampling and updates."""
    sizes = QUICK if args.quick else Sizes()
    fewer = f", {sizes.peer_rows:_} rows".replace("_", " ")
    replays = Replays(filled(sizes.rows), filled(sizes.peer_rows), peers(sizes.peer_rows), fewer)
    found = [copying(replays.ours, sizes, args.repeats)]
    found += [sampling(replays, batch_size, sizes, args.repeats) for batch_size in SAMPLE_WANTED]
    return found + [updating(replays, batch_size, sizes, args.repeats) for batch_size in SAMPLE_WANTED]


if __name__ == "__main__":
    run(measure, "Compare sampling from replay with a bare gather and with other replays. Takes 9 GB of memory.")

"""How fast replay samples and takes new priorities, against a bare gather of its frames and against other replays.

Like is compared with like: a sample is, for each, the stack of 4 frames at a row, the stack 3 steps later, the action
and the weight; ours and cpprb's have the return of the 3 steps, too. The gather copies as many frames and nothing else.
All run on one thread, as cpprb can do no other. `Replay` holds a million rows, which take 9 GB of memory; the peers
hold fewer, and a `Replay` of their size is measured next to them. Peers that are not installed are left out; each is as
fast as its own documentation makes it:

- cpprb with `stack_compress` for both stacks (its `next_of` does not go together with `Nstep`) and returns of 3 steps;
- tianshou with `stack_num=4`, `ignore_obs_next` and `save_only_last_obs`; 1 step, as its algorithms sum up returns.

torchrl 0.14.1 is not among them: its compiled segment trees do not load with the pinned torch.
"""

import argparse
import importlib.util
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.harness import Comparison, Work, compare, one_thread
from benchmarks.workloads import ATARI, SPEC, noise_chunks
from rainbow_iqn_apex.memory.batch import Batch, Transitions
from rainbow_iqn_apex.memory.chunk import ChunkId
from rainbow_iqn_apex.memory.fast.ring import RingRows
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.memory.rows import Array

BETA = 0.5
PREPARED = 64  # batches whose priorities are updated in turn
STEPS = 3  # of the returns
GAMMA = 0.99
CLIP = 1.0  # of rewards
SAMPLE_WANTED = {32: 0.8, 512: 0.95}  # least ratio of a batch of transitions to the gather
_EPISODE = 1000  # rows of a peer's episode
UPDATE_WANTED = 10.0  # least ratio of `Replay.learned` to a batch of transitions


class Peer(NamedTuple):
    """Holds another replay, full of frames."""

    name: str
    sample: Callable[[int], Array]  # draws a batch of this size; where its samples came from
    update: Callable[[Array, Array], object]  # the priorities of what is there


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
    (chunk,) = noise_chunks(SPEC, 1)
    generator = np.random.default_rng(1)
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
    batch = replay.sample(batch_size, BETA)
    shape = (PREPARED, batch_size)
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
    batch_size = 512
    gathers = 4
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


def peers(rows: int) -> list[Peer]:
    """Return every replay that is installed, with so many rows and random priorities."""
    made = {"cpprb": _cpprb, "tianshou": _tianshou}
    return [make(rows) for package, make in made.items() if importlib.util.find_spec(package)]


def _stacks() -> Array:
    """Return the stacks of an episode, without a copy: [rows + 3, 84, 84, 4] uint8."""
    frames = np.random.default_rng(1).integers(256, size=(_EPISODE + 6, 84, 84), dtype=np.uint8)
    return np.lib.stride_tricks.sliding_window_view(frames, 4, axis=0)


def _episodes(rows: int) -> Iterator[Array]:
    """Yield, for each episode, which of its rows is the last."""
    for start in range(0, rows, _EPISODE):
        done = np.zeros(min(_EPISODE, rows - start), np.bool_)
        done[-1] = True
        yield done


def _priorities(rows: int) -> Array:
    return np.random.default_rng(1).random(rows)


def _cpprb(rows: int) -> Peer:
    stack = {"shape": (84, 84, 4), "dtype": np.uint8}
    buffer: Any = import_module("cpprb").PrioritizedReplayBuffer(
        rows,
        {"obs": stack, "next_obs": stack, "act": {"dtype": np.int32}, "rew": {}, "done": {}},
        stack_compress=("obs", "next_obs"),
        Nstep={"size": 3, "gamma": 0.99, "rew": "rew", "next": "next_obs"},
    )
    stacks = _stacks()
    for done in _episodes(rows):
        n = len(done)
        buffer.add(obs=stacks[:n], next_obs=stacks[1 : n + 1], act=np.zeros(n), rew=np.ones(n), done=done)
        buffer.on_episode_end()
    buffer.update_priorities(np.arange(rows), _priorities(rows))
    return Peer("cpprb", lambda batch_size: buffer.sample(batch_size, beta=0.5)["indexes"], buffer.update_priorities)


def _tianshou(rows: int) -> Peer:
    data: Any = import_module("tianshou.data")
    buffer = data.PrioritizedReplayBuffer(
        rows, alpha=0.5, beta=0.5, stack_num=4, ignore_obs_next=True, save_only_last_obs=True
    )
    stacks = np.moveaxis(_stacks(), -1, 1)  # [rows + 3, 4, 84, 84]
    for done in _episodes(rows):
        for t, last in enumerate(done):
            row = {"obs": stacks[t], "obs_next": stacks[t + 1], "act": 0, "rew": 1.0, "info": {}}
            buffer.add(data.Batch(**row, terminated=last, truncated=False))
    buffer.update_weight(np.arange(rows), _priorities(rows))
    return Peer("tianshou", lambda batch_size: buffer.sample(batch_size)[1], buffer.update_weight)


class NumpyTree:
    """Sums priorities as most implementations do: binary, in a NumPy array, a level of a batch at a time."""

    def __init__(self, leaves: int) -> None:
        self._first = 1 << (leaves - 1).bit_length()
        self._nodes = np.zeros(2 * self._first)

    def update(self, leaves: Array, priorities: Array) -> None:
        """Write priorities [B] of leaves [B] and recompute the sums above them."""
        nodes = leaves + self._first
        self._nodes[nodes] = priorities
        while nodes[0] > 1:
            nodes //= 2
            self._nodes[nodes] = self._nodes[2 * nodes] + self._nodes[2 * nodes + 1]

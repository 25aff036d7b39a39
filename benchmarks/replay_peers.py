"""Other replays to compare with, as fast as their own documentation makes them; those not installed are left out.

Each holds frames [84, 84] and gives, for a sample, a stack of 4 frames, the stack that follows, and a weight:

- cpprb with `stack_compress` for both stacks (its `next_of` does not go together with `Nstep`) and returns of 3 steps;
- tianshou with `stack_num=4`, `ignore_obs_next` and `save_only_last_obs`; 1 step, as its algorithms sum up returns.

torchrl 0.14.1 is not among them: its compiled segment trees do not load with the pinned torch.
"""

import importlib.util
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from rainbow_iqn_apex.memory.rows import Array

_EPISODE = 1000  # rows


class Peer(NamedTuple):
    """Holds another replay, full of frames."""

    name: str
    sample: Callable[[int], Array]  # draws a batch of this size; where its samples came from
    update: Callable[[Array, Array], object]  # the priorities of what is there


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

"""What must not be so: each makes a process lose or double experience, or its place, under some fault."""

import itertools
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from msgspec import structs
from torch import Tensor

from rainbow_iqn_apex.agents.impala.agent import Impala, PolicyValue
from rainbow_iqn_apex.memory.broker import leases as lease
from rainbow_iqn_apex.memory.broker import scripts as lua
from rainbow_iqn_apex.memory.broker.actor_client import Saved
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.scripts import Commit, Scripts
from rainbow_iqn_apex.memory.buffer import Checkpoint, RememberingBuffer
from rainbow_iqn_apex.memory.chunk import Chunk
from rainbow_iqn_apex.memory.fast.ring import MemoryRing
from rainbow_iqn_apex.memory.limiter import RateLimiter
from rainbow_iqn_apex.memory.mixture.buffer import Mixture
from rainbow_iqn_apex.memory.mixture.pool import WaitingLine
from rainbow_iqn_apex.memory.mixture.tables import Table
from rainbow_iqn_apex.memory.queue import Queue
from rainbow_iqn_apex.memory.rows import Arrays
from rainbow_iqn_apex.programs.actor.rollout import ResumePoint, Rollout
from rainbow_iqn_apex.programs.learner.update_scheduler import StepPace

_APPEND = """redis.pcall('XADD', KEYS[1], string.format('%.0f-0', first + i - 6), 'm', ARGV[i])"""
_APPEND_WHEN_IT_IS = """redis.pcall('XADD', KEYS[1], '*', 'm', ARGV[i])"""
_STATE = """redis.call('HSET', KEYS[2], 'state', ARGV[5], 'sequence', last, 'owner', ARGV[1])"""
GAP_S = 1.0  # between the two steps of a commit that should be one


def apply(name: str) -> None:
    """Change this process."""
    changes: dict[str, Callable[[], object]] = {
        "nothing": lambda: None,
        "messages without state": _messages_without_state,
        "messages before state": _messages_before_state,
        "ids of the clock": partial(_change_commit, _APPEND, _APPEND_WHEN_IT_IS),
        "trim before ingest": _trim_before_ingest,
        "lease not renewed": partial(setattr, lease.Lease, "_keep", lambda *_: None),
        "actors never wait": partial(setattr, RateLimiter, "may_play", lambda *_: True),
        # The learner takes in all that has arrived, whether it has room or not.
        "queue overfilled": partial(setattr, Queue, "room", property(lambda _: sys.maxsize)),
        "queue forgotten": _queue_forgotten,
        # A learner that resumes takes all that is in the log for what waited.
        "queue taken up twice": partial(setattr, Queue, "remembers", lambda *_: True),
        "memory not restored": _memory_not_restored,
        "fresh twice": _fresh_twice,
        "waiting sequences not saved": _waiting_sequences_not_saved,
        "table keeps its oldest": _table_keeps_its_oldest,
        "features of the row before": _features_of_the_row_before,
        "state of another chunk": _state_of_another_chunk,
        "updates ahead of rows": partial(setattr, StepPace, "_is_ahead", lambda *_: False),
    }
    changes[name]()


def _change_commit(old: str, new: str) -> None:
    assert old in lua.COMMIT
    lua.COMMIT = lua.COMMIT.replace(old, new)


def _messages_without_state() -> None:
    """Only the first commit stores the state."""
    _change_commit(_STATE, f"if first == 1 then {_STATE} else redis.call('HSET', KEYS[2], 'sequence', last) end")


def _messages_before_state() -> None:
    """Two steps, with time to be killed between them."""
    _change_commit(_STATE, "redis.call('HSET', KEYS[2], 'owner', 'nobody')")
    commit_at_once = Scripts.commit

    def commit_in_two_steps(
        self: Scripts, keys: Keys, actor: int, token: bytes, commit: Commit, *, allow_gap: bool
    ) -> int | None:
        known = commit_at_once(self, keys, actor, token, commit, allow_gap=allow_gap)
        time.sleep(GAP_S)
        client = self._commit.client
        client.hset(keys.state(actor), mapping={"state": commit.state, "sequence": commit.last, "owner": token})
        return known

    Scripts.commit = commit_in_two_steps  # type: ignore[method-assign]


def _trim_before_ingest() -> None:
    """The learner drops what it has not read."""

    def trim(self: LearnerClient, oldest: dict[int, int]) -> None:
        for actor in oldest:
            self._client.xtrim(self.keys.log(actor), maxlen=0, approximate=False)

    LearnerClient.trim = trim  # type: ignore[assignment, method-assign]


def _queue_forgotten() -> None:
    """A learner that resumes leaves out what waited."""
    restore = Queue.restore

    def restore_nothing(self: RememberingBuffer, checkpoint: Checkpoint, newest: dict[int, int]) -> None:
        restore(self, structs.replace(checkpoint, ids=checkpoint.ids[:0], priorities=checkpoint.priorities[:0]), newest)

    Queue.restore = restore_nothing  # type: ignore[method-assign]


def _fresh_twice() -> None:
    """A mixture lets every tenth batch's fresh sequences wait again once they were learned from."""
    settle, settled = WaitingLine.settle, itertools.count(1)

    def settle_or_put_back(self: WaitingLine, versions: Tensor) -> None:
        (settle if next(settled) % 10 else WaitingLine.put_back)(self, versions)

    WaitingLine.settle = settle_or_put_back  # type: ignore[method-assign]


def _waiting_sequences_not_saved() -> None:
    """A checkpoint of a mixture has the tables alone."""
    checkpoint = Mixture.checkpoint

    def checkpoint_without_queue(self: Mixture) -> Checkpoint:
        whole = checkpoint(self)
        return structs.replace(whole, extra=whole.extra | {"waiting": torch.zeros(0, dtype=torch.int64)})

    Mixture.checkpoint = checkpoint_without_queue  # type: ignore[method-assign]


def _table_keeps_its_oldest() -> None:
    """A table that is full takes nothing in the place of its first sequence."""
    add = Table.add

    def add_elsewhere(self: Table, slot: int, number: int) -> None:
        if number < self.capacity or number % self.capacity:
            add(self, slot, number)

    Table.add = add_elsewhere  # type: ignore[method-assign]


def _features_of_the_row_before() -> None:
    recorded, before = Impala._recorded, dict[int, Arrays]()

    def recorded_too_late(self: Impala, now: PolicyValue) -> Arrays:
        new = recorded(self, now)
        features = before.get(0, new)["features"]
        before[0] = new
        return new | {"features": features}

    Impala._recorded = recorded_too_late  # type: ignore[method-assign]


def _memory_not_restored() -> None:
    """An actor's successor acts as if an episode began."""
    restore = Rollout._restore

    def restore_without_memory(self: Rollout, saved: Saved) -> ResumePoint:
        place = restore(self, saved)
        for group in self._groups:
            group.state = {name: np.zeros_like(array) for name, array in group.state.items()}
        return place

    Rollout._restore = restore_without_memory  # type: ignore[method-assign]


def _state_of_another_chunk() -> None:
    """A chunk in the replay keeps the state of the one before it in its place."""
    write = MemoryRing.write

    def write_all_but_state(self: MemoryRing, slot: int, chunk: Chunk, generation: int) -> None:
        kept = {name: tensor[slot].clone() for name, tensor in self.state.items()}
        write(self, slot, chunk, generation)
        if generation >= len(self.generation):
            for name, tensor in kept.items():
                self.state[name][slot] = tensor

    MemoryRing.write = write_all_but_state  # type: ignore[method-assign]

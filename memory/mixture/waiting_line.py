"""The queue of a mixture: each sequence is given once, the oldest first."""

from collections import deque
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from rainbow_iqn_apex.memory.mixture.pool import Pool


class Given(NamedTuple):
    """Holds what a batch has taken of the queue; its tensor of versions identifies it, so nothing waits for a GPU."""

    versions: Tensor  # [n] int64, of the weights that acted last
    slots: tuple[int, ...]


class WaitingLine:
    """Slots of sequences that wait for their one update, and those of batches that were not learned from yet.

    Both count against the capacity. A full queue drops its oldest: first those given, which then cannot be put back.
    """

    def __init__(self, pool: Pool, capacity: int) -> None:
        self.capacity = capacity
        self.waiting: deque[int] = deque()  # slots, oldest first; some may be reserved for sequences still to come
        self._pool = pool
        self._given: deque[Given] = deque()

    def __len__(self) -> int:
        return len(self.waiting) + sum(len(given.slots) for given in self._given)

    def add(self, slot: int) -> None:
        """Let a sequence wait behind all others."""
        if len(self) >= self.capacity:
            if self._given:
                self._release(self._given.popleft())
            else:
                self._pool.release(self.waiting.popleft())
        self.waiting.append(slot)
        self._pool.retain(slot)

    def next(self, n: int) -> list[int]:
        """Return the slots of the oldest sequences that are here, at most n."""
        return list(islice((slot for slot in self.waiting if self._pool.here[slot]), n))

    def give(self, slots: list[int]) -> Tensor:
        """Take sequences that are here; return their versions [n], by which they are known until they are settled."""
        versions = torch.from_numpy(self._pool.versions[slots]).to(self._pool.device)
        for slot in slots:
            self.waiting.remove(slot)  # at its front, or behind those still to come
        self._given.append(Given(versions, tuple(slots)))
        return versions

    def settle(self, versions: Tensor) -> None:
        """Give up what a batch has taken: it was learned from."""
        if (given := self._find(versions)) is not None:
            self._release(given)

    def put_back(self, versions: Tensor) -> None:
        """Return what a batch has taken to the front, unless it has been given up meanwhile."""
        if (given := self._find(versions)) is not None:
            self.waiting.extendleft(reversed(given.slots))

    def forget(self, slots: set[int]) -> None:
        """Give up sequences that will not come any more."""
        for slot in slots & {*self.waiting}:
            self.waiting.remove(slot)
            self._pool.release(slot)

    def references(self) -> list[int]:
        """Return the slots of all that waits and all that was given."""
        return [*self.waiting, *(slot for given in self._given for slot in given.slots)]

    def _find(self, versions: Tensor) -> Given | None:
        """Remove and return what a batch with this very tensor has taken."""
        for at, given in enumerate(self._given):
            if given.versions is versions:
                del self._given[at]
                return given
        return None

    def _release(self, given: Given) -> None:
        for slot in given.slots:
            self._pool.release(slot)

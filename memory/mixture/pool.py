"""The sequences of a mixture, each stored once, however many tables refer to its slot; and those that wait.

A slot is free, or it has a name and one reference at least. After a restart, slots are reserved for the sequences that
tables refer to, until these have been read from the log again. Letters: T rows of a window, B batch.
"""

import heapq
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId, ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.memory.replay import make_ring


class Sequences(NamedTuple):
    """Sequences side by side, time-major."""

    rows: dict[str, Tensor]  # [T, B, ...]
    state: dict[str, Tensor]  # [B, ...]
    numbers: Tensor  # [B] int64, insertions before each


class Pool:
    """Room for `size` sequences on a device; raises ValueError for a spec whose chunks are not one sample each.

    `numbers`, `versions`, `steps` and `here` are kept in the machine's memory, too, for all decisions that are not a
    matter of drawing.
    """

    def __init__(self, spec: ChunkSpec, environment: EnvironmentSpec, size: int, device: torch.device) -> None:
        if spec.samples != 1:
            raise ValueError(f"a mixture gives whole chunks, and these have {spec.samples} samples")
        self.spec = spec
        self.size = size
        self.device = device
        self.ids: list[ChunkId | None] = [None] * size
        self.numbers = np.full(size, -1, np.int64)  # insertions before each
        self.versions = np.zeros(size, np.int64)  # of the weights that acted last
        self.steps = np.zeros(size, np.int64)  # agent steps of each
        self.here = np.zeros(size, np.bool_)  # stored, not free and not reserved
        self.references = np.zeros(size, np.int64)
        self.awaited: dict[ChunkId, int] = {}  # reserved slots
        self._free = list(range(size))  # a heap: the lowest goes first, so that a restored pool continues identically
        self._ring = make_ring(spec, spec.row_fields(environment), size, device)

    def put(self, chunk_id: ChunkId, chunk: Chunk, number: int) -> int:
        """Store a sequence, and return its slot; a table must `retain` the slot."""
        slot = heapq.heappop(self._free)
        self.ids[slot] = chunk_id
        self.numbers[slot] = number
        self._write(slot, chunk)
        return slot

    def fill(self, chunk_id: ChunkId, chunk: Chunk) -> int:
        """Store an awaited sequence in its reserved slot, and return the slot."""
        slot = self.awaited.pop(chunk_id)
        self._write(slot, chunk)
        return slot

    def _write(self, slot: int, chunk: Chunk) -> None:
        self._ring.write(slot, chunk, int(self.numbers[slot]))
        self.versions[slot] = chunk.version
        self.steps[slot] = self.spec.steps(chunk.rows["step_type"])
        self.here[slot] = True

    def reserve(self, entries: Iterable[tuple[ChunkId, int, int]]) -> None:
        """Reserve slots of an empty pool for sequences of these numbers; a table must `retain` each of them."""
        for chunk_id, slot, number in entries:
            self.ids[slot] = chunk_id
            self.numbers[slot] = number
            self.awaited[chunk_id] = slot
        self._free = [slot for slot in range(self.size) if self.ids[slot] is None]  # sorted, so a heap

    def retain(self, slot: int) -> None:
        """Count one more reference to a slot."""
        self.references[slot] += 1

    def release(self, slot: int) -> None:
        """Count one reference less; a slot without any is free."""
        self.references[slot] -= 1
        if self.references[slot] > 0:
            return
        chunk_id = self.ids[slot]
        if not self.here[slot] and chunk_id is not None:
            del self.awaited[chunk_id]
        self.ids[slot] = None
        self.numbers[slot] = -1
        self.here[slot] = False
        heapq.heappush(self._free, slot)

    def gather(self, slots: Tensor) -> Sequences:
        """Copy the sequences of the slots [B] int64, which may repeat."""
        places = self._ring.places(slots)  # [T, B]
        return Sequences(
            {name: self._ring.gather(name, places) for name in self._ring.rows},
            {name: tensor[slots] for name, tensor in self._ring.state.items()},
            self._ring.generation[slots],
        )

    def tensor(self, slots: Iterable[int]) -> Tensor:
        """Return slots as a tensor [B] int64 on the pool's device."""
        return torch.tensor([int(slot) for slot in slots], dtype=torch.int64, device=self.device)


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

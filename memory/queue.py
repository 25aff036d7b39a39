"""The learner's queue: each chunk is learned from once, the oldest first. For agents that learn from fresh rows."""

from collections import deque
from collections.abc import Iterable
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.buffer import Checkpoint, RememberingBuffer, oldest_of
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId, ChunkSpec
from rainbow_iqn_apex.memory.ring import tensor_of
from rainbow_iqn_apex.memory.rows import Arrays

LOG_ROWS = 100_000  # at least, that the log may hold for the older of two checkpoints


class Queue(RememberingBuffer):
    """Buffer of chunks that wait for their one update; a full queue drops its oldest chunk.

    A chunk is one sample. `capacity` counts rows, as for a replay, and `batch_size` the chunks of an update, None all
    that wait: an agent that takes turns with its actors learns at once from all that they have played.
    """

    def __init__(
        self, spec: ChunkSpec, capacity: int, batch_size: int | None, generator: torch.Generator, device: torch.device
    ) -> None:
        super().__init__()
        if spec.samples != 1:
            raise ValueError(f"a queue gives whole chunks, and these have {spec.samples} samples")
        self.spec = spec
        self.device = device
        self.generator = generator
        self.slots = max(batch_size or 1, -(-capacity // spec.period))
        self.capacity = self.slots * spec.period
        self.turnover = max(self.slots, LOG_ROWS // spec.period) // 2
        self.inserted = 0
        self._batch_size = batch_size
        self._waiting: deque[tuple[ChunkId, Chunk]] = deque()

    @property
    def steps(self) -> int:
        """Agent steps held."""
        return self._steps_of(self._waiting)

    @property
    def chunks(self) -> int:
        """Chunks held."""
        return len(self._waiting)

    def add(self, chunk_id: ChunkId, chunk: Chunk) -> None:
        """Let a chunk wait behind all others; leave out a chunk without a row to learn from."""
        self._remembered.pop(chunk_id, None)
        self.inserted += 1
        if not self.spec.learnable(chunk.rows["step_type"]).any():
            return
        if len(self._waiting) == self.slots:
            self._waiting.popleft()
        self._waiting.append((chunk_id, chunk))

    @property
    def room(self) -> int:
        """Chunks that can be added before one is dropped."""
        return self.slots - len(self._waiting)

    @property
    def fresh(self) -> "Queue":
        """Return the queue itself: all its chunks are fresh."""
        return self

    @property
    def wanted(self) -> int:
        """Chunks of a batch; one makes a batch of all that wait."""
        return self._batch_size or 1

    def ready(self) -> bool:
        """Return whether a batch waits."""
        return len(self._waiting) >= self.wanted

    def next_steps(self, most: int = 1) -> list[int]:
        """Count the agent steps of each of the next batches, `most` of them at most: the rows to learn from."""
        size = self._batch_size or max(1, len(self._waiting))
        batches = min(most, len(self._waiting) // size)
        return [self._steps_of(islice(self._waiting, i * size, (i + 1) * size)) for i in range(batches)]

    def _steps_of(self, waiting: Iterable[tuple[ChunkId, Chunk]]) -> int:
        return sum(self.spec.steps(chunk.rows["step_type"]) for _, chunk in waiting)

    def sample(self, batch_size: int | None, progress: float | Tensor = 0.0) -> Batch:  # noqa: ARG002 - a replay's
        """Take the oldest chunks (None: all), time-major: [T, B, ...]; raises ValueError if fewer wait."""
        size = batch_size or max(1, len(self._waiting))
        if len(self._waiting) < size:
            raise ValueError(f"a batch of {size}, and {len(self._waiting)} chunks wait")
        chunks = [self._waiting.popleft()[1] for _ in range(size)]
        rows = {name: np.stack([chunk.rows[name] for chunk in chunks], axis=1) for name in chunks[0].rows}
        state = {name: np.stack([chunk.state[name] for chunk in chunks]) for name in chunks[0].state}
        versions = torch.tensor([chunk.version for chunk in chunks], device=self.device)
        return Batch(self._tensors(rows), self._tensors(state), versions=versions)

    def _tensors(self, arrays: Arrays) -> dict[str, Tensor]:
        return {name: tensor_of(array).to(self.device) for name, array in arrays.items()}

    def learned(self, batch: Batch, priorities: Tensor | None) -> None:
        """Do nothing: `sample` has removed the batch's chunks already."""

    def oldest(self) -> dict[int, int]:
        """Return, by actor, the sequence number of its oldest chunk held, or still to come of a checkpoint."""
        return oldest_of([*self._remembered, *(waiting for waiting, _ in self._waiting)])

    def checkpoint(self) -> Checkpoint:
        """Name the chunks that wait, and those of a restored checkpoint that are still to come."""
        ids = [*sorted(self._remembered), *(waiting for waiting, _ in self._waiting)]
        return Checkpoint(
            self.inserted - len(self._waiting),
            torch.tensor(ids, dtype=torch.int64).reshape(-1, 2),
            torch.zeros(len(ids), self.spec.samples),
        )

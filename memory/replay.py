"""The learner's replay: a ring of chunks in preallocated tensors, with priorities in a segment tree.

Each frame is stored once per chunk (a chunk's prefix and bootstrap rows repeat 6 rows in 70). A sample is a window of
rows around its learnable ones, cut from one chunk: nothing is ever put together from neighbours in the ring.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.buffer import Checkpoint, RememberingBuffer, oldest_of
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId, ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec, Field
from rainbow_iqn_apex.memory.ring import Ring, tensor_of
from rainbow_iqn_apex.memory.segment_tree import SegmentTree

_MOST = torch.finfo(torch.float32).max  # of a priority, as checkpoints keep them


class Replay(RememberingBuffer):
    """Buffer that samples again and again: a ring of chunks, with room for `capacity` rows that may be learned from.

    A spec of prioritised chunks is sampled in proportion to their priorities, any other uniformly. `generator` draws
    the samples and lives on `device`. `new_at_largest` multiplies the priorities of new samples by the largest so far.
    Importance weights have the exponent beta, which goes from the first to the second `priority_weight` as learning
    goes on. Of several learners, which draw a batch together, `least_of_all` returns the least of their numbers []: the
    largest weight is then that of all their samples.
    """

    def __init__(
        self,
        spec: ChunkSpec,
        environment: EnvironmentSpec,
        capacity: int,
        generator: torch.Generator,
        device: torch.device,
        *,
        learn_start: int = 1,
        priority_weight: tuple[float, float] = (0.0, 1.0),
        least_of_all: Callable[[Tensor], Tensor] | None = None,
        new_at_largest: bool = False,
    ) -> None:
        super().__init__()
        self.spec = spec
        self._least_of_all = least_of_all
        self._learn_start = learn_start
        self._priority_weight = priority_weight
        self.row_fields = spec.row_fields(environment)
        self.slots = max(2, -(-capacity // spec.period))
        self.capacity = self.slots * spec.period
        self.turnover = self.slots // 2
        self.device = device
        self.generator = generator
        self.ring = make_ring(spec, self.row_fields, self.slots, device)
        self._tree = make_tree(self.slots * spec.samples, device)
        self._largest = torch.ones(1, dtype=torch.float64, device=device) if new_at_largest else None  # priority so far
        self._ids: list[ChunkId | None] = [None] * self.slots
        self._filled = 0  # slots
        self._steps = np.zeros(self.slots, np.int64)  # agent steps of each slot's chunk
        self._sampled: Tensor | None = None  # insertions before each chunk of the newest batch
        self.inserted = 0  # chunks, ever

    @property
    def steps(self) -> int:
        """Agent steps held."""
        return int(self._steps.sum())

    @property
    def chunks(self) -> int:
        """Chunks held."""
        return self._filled

    @property
    def room(self) -> int:
        """Chunks that can be added at once: all that it can hold, as it needs none of those that it replaces."""
        return self.slots

    def add(self, chunk_id: ChunkId, chunk: Chunk) -> None:
        """Store a chunk in the place of the oldest one, with the priorities of a restored checkpoint, if it has any."""
        slot = self.inserted % self.slots
        self.ring.write(slot, chunk, self.inserted)
        priorities = self._remembered.pop(chunk_id, None)
        if priorities is None:
            own = chunk.priorities
            if own is None:
                own = self.spec.learnable(chunk.rows["step_type"]).astype(np.float32)  # [samples]
            priorities = tensor_of(own).to(self.device, torch.float64)
            if self._largest is not None:
                priorities = (priorities * self._largest).clamp(max=_MOST)
        self._tree.set(self._leaves_of(slot), priorities.to(self.device, torch.float64))
        self._filled += self._ids[slot] is None
        self._ids[slot] = chunk_id
        self._steps[slot] = self.spec.steps(chunk.rows["step_type"])
        self.inserted += 1

    def ready(self) -> bool:
        """Return whether `learn_start` agent steps are held, or as many as there is room for."""
        return self.steps >= self._learn_start or self._filled == self.slots

    def sample(self, batch_size: int | None, progress: float | Tensor) -> Batch:
        """Draw a batch, stratified by priority; on a CPU raises RunError if there is nothing to draw.

        `progress` is the share of learning that is done: 0 at learn-start, 1 at T-max.
        """
        assert batch_size, "only a queue gives all that it has"
        start, end = self._priority_weight
        beta = start + (end - start) * progress
        batch = self.ring.sample(self._tree, batch_size, beta, self.generator)
        self._sampled = batch.generations
        if not self.spec.prioritised:
            return Batch(batch.rows, batch.state)
        return batch if self._least_of_all is None else self._weighed_with_others(batch, beta, self._least_of_all)

    def _weighed_with_others(
        self, batch: Batch, beta: float | Tensor, least_of_all: Callable[[Tensor], Tensor]
    ) -> Batch:
        """Return the batch with weights of which the largest of all learners is 1: see `importance_weights`."""
        assert batch.indices is not None and batch.weights is not None
        least = self._tree.get(batch.indices).min() / self._tree.total  # []
        factor = (least_of_all(least) / least) ** beta
        return batch._replace(weights=batch.weights * factor.to(batch.weights))

    def sampled_age(self) -> float | None:
        """Return how many chunks came after those of the newest batch, on average; None without such a batch."""
        return None if self._sampled is None else self.inserted - 1 - self._sampled.double().mean().item()

    def priorities(self, most: int) -> Tensor | None:
        """Return the priorities of at most `most` samples, spread over all; None without priorities."""
        if not self.spec.prioritised:
            return None
        held = min(self.inserted, self.slots) * self.spec.samples
        priorities: Tensor = self._tree.get(torch.arange(0, held, max(1, -(-held // most)), device=self.device))
        return priorities[priorities > 0].cpu()  # a LAST row has none

    def recorded(self) -> list[Tensor]:
        """Return all that `learned` changes, no copies: the tree's own tensors, and the largest priority."""
        tensors: list[Tensor] = self._tree.tensors()
        return tensors if self._largest is None else [*tensors, self._largest]

    def learned(self, batch: Batch, priorities: Tensor | None) -> None:
        """Set the new priorities [B] of a batch; samples whose slot was overwritten meanwhile are left alone."""
        if priorities is None or batch.indices is None:
            return
        current = self.ring.generation[batch.indices // self.spec.samples] == batch.generations
        values = priorities.to(self.device, torch.float64)
        self._tree.set(batch.indices, values, where=current)
        if self._largest is not None:
            torch.maximum(self._largest, values.max(), out=self._largest)

    def oldest(self) -> dict[int, int]:
        """Return, by actor, the sequence number of its oldest chunk held, or still to come of a restored checkpoint."""
        return oldest_of([*self._remembered, *self._held()])

    def checkpoint(self) -> Checkpoint:
        """Name all chunks held, and those of a restored checkpoint that are still to come; on the CPU."""
        held = {chunk_id: slot for slot, chunk_id in enumerate(self._ids) if chunk_id is not None}
        samples = self.spec.samples
        slots = torch.tensor(list(held.values()), dtype=torch.int64).unsqueeze(1)  # [held, 1]
        leaves = (slots * samples + torch.arange(samples)).flatten().to(self.device)  # [held * samples]
        own = self._tree.get(leaves).float().cpu().reshape(-1, samples)
        ids = torch.tensor([*self._remembered, *held], dtype=torch.int64).reshape(-1, 2)
        stacked = torch.cat([*(one.unsqueeze(0) for one in self._remembered.values()), own])
        extra = {} if self._largest is None else {"largest": self._largest.cpu().clone()}
        return Checkpoint(self.inserted - len(held), ids, stacked, extra)

    def restore(self, checkpoint: Checkpoint, newest: dict[int, int]) -> None:
        """Prepare as `Buffer.restore` does, and take over the largest priority."""
        if self._largest is not None and (largest := checkpoint.extra.get("largest")) is not None:
            if largest.shape != (1,) or largest.dtype != torch.float64 or not 1 <= largest.item() < torch.inf:
                raise ValueError("the replay's largest priority is no finite number from 1 on")
            self._largest.copy_(largest)
        super().restore(checkpoint, newest)

    def _held(self) -> Iterable[ChunkId]:
        return (chunk_id for chunk_id in self._ids if chunk_id is not None)

    def _leaves_of(self, slot: int) -> Tensor:
        return torch.arange(slot * self.spec.samples, (slot + 1) * self.spec.samples, device=self.device)


def make_tree(capacity: int, device: torch.device) -> Any:
    """Return the fastest tree for a device: a `SegmentTree`, or a `BinaryTree`, which has the same interface."""
    if device.type == "cpu":
        from rainbow_iqn_apex.memory.fast.binary_tree import BinaryTree  # loads numba, which no actor needs

        return BinaryTree(capacity)
    return SegmentTree(capacity, device)


def make_ring(spec: ChunkSpec, fields: Mapping[str, Field], slots: int, device: torch.device) -> Ring:
    """Return the fastest ring for a device."""
    if device.type == "cpu":
        from rainbow_iqn_apex.memory.fast.ring import MemoryRing  # loads numba, too

        return MemoryRing(spec, fields, slots)
    return Ring(spec, fields, slots, device)

"""The learner's replay: a ring of chunks in preallocated tensors, with priorities in a segment tree.

Each frame is stored once per chunk (a chunk's prefix and bootstrap rows repeat 6 rows in 70). A sample is a window of
rows around its learnable ones, cut from one chunk: nothing is ever put together from neighbours in the ring.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from memory.chunk import Chunk, ChunkId, ChunkSpec
from memory.draws import importance_weights
from memory.environment_spec import EnvironmentSpec
from memory.rows import Array
from memory.segment_tree import SegmentTree

_DTYPES = {"uint8": torch.uint8, "int32": torch.int32, "int64": torch.int64, "float32": torch.float32}


class Batch(NamedTuple):
    """A sampled batch, time-major: T = prefix + sample length + bootstrap rows, B samples.

    `indices` and `generations` name the place of each sample, for `Replay.update_priorities`.
    """

    obs: Tensor  # [T, B, ...]
    step_type: Tensor  # [T, B] uint8
    reward: Tensor  # [T, B] float32, raw
    discount: Tensor  # [T, B] float32
    action: Tensor  # [T, B] int32
    extras: dict[str, Tensor]  # [T, B, ...]
    state: dict[str, Tensor]  # [B, ...]
    weights: Tensor  # [B] float32, importance-sampling weights, the largest is 1
    indices: Tensor  # [B] int64
    generations: Tensor  # [B] int64

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device; itself if it is there."""
        if self.obs.device == device:
            return self
        tensors = (
            {name: part.to(device) for name, part in value.items()} if isinstance(value, dict) else value.to(device)
            for value in self
        )
        return Batch(*tensors)  # type: ignore[arg-type]


class Checkpoint(NamedTuple):
    """A replay without its rows, which the log has: which chunks, where, with which priorities."""

    first: int  # insertions before the oldest chunk: it decides the slots
    ids: Tensor  # [chunks, 2] int64: actor, sequence
    priorities: Tensor  # [chunks, samples] float32


class Replay:
    """Ring of chunks; room for `capacity` rows that may be learned from.

    `generator` draws the samples and lives on `device`.
    """

    def __init__(
        self,
        spec: ChunkSpec,
        environment: EnvironmentSpec,
        capacity: int,
        generator: torch.Generator,
        device: torch.device,
    ) -> None:
        self.spec = spec
        self.row_fields = spec.row_fields(environment)
        self.slots = max(2, -(-capacity // spec.period))
        self.device = device
        self.generator = generator
        self._rows = {
            name: torch.zeros((self.slots * spec.window, *field.shape), dtype=_DTYPES[field.dtype], device=device)
            for name, field in self.row_fields.items()
        }
        self._state = {
            name: torch.zeros((self.slots, *field.shape), dtype=_DTYPES[field.dtype], device=device)
            for name, field in spec.state
        }
        self._tree = make_tree(self.slots * spec.samples, device)
        self._generation = torch.full((self.slots,), -1, dtype=torch.int64, device=device)
        self._ids: list[ChunkId | None] = [None] * self.slots
        self._learnable = [0] * self.slots
        self._remembered: dict[ChunkId, Tensor] = {}
        self.inserted = 0  # chunks, ever
        self.size = 0  # samples that can be drawn
        self._window = torch.arange(spec.sample_window, device=device)

    @property
    def rows(self) -> int:
        """Rows held, LAST rows among them, not counting prefixes and bootstrap rows."""
        return sum(chunk_id is not None for chunk_id in self._ids) * self.spec.period

    def add(self, chunk_id: ChunkId, chunk: Chunk) -> None:
        """Store a chunk in the place of the oldest one; priorities of a restored checkpoint go before its own."""
        slot = self.inserted % self.slots
        start = slot * self.spec.window
        for name, array in chunk.rows.items():
            self._rows[name][start : start + self.spec.window].copy_(_tensor(array))
        for name, array in chunk.state.items():
            self._state[name][slot].copy_(_tensor(array))
        priorities = self._remembered.pop(chunk_id, None)
        if priorities is None:
            assert chunk.priorities is not None, "a spec without priorities"
            priorities = _tensor(chunk.priorities)
        self._tree.set(self._leaves_of(slot), priorities.to(self.device, torch.float64))
        learnable = int(self.spec.learnable(chunk.rows["step_type"]).sum())
        self.size += learnable - self._learnable[slot]
        self._learnable[slot] = learnable
        self._ids[slot] = chunk_id
        self._generation[slot] = self.inserted
        self.inserted += 1

    def sample(self, batch_size: int, beta: float | Tensor) -> Batch:
        """Draw a batch, stratified by priority; raises ValueError if there is nothing to draw."""
        spec = self.spec
        indices, probabilities = self._tree.stratified(batch_size, self.generator)
        slots = indices // spec.samples
        first = (indices * spec.sample_length).add_(slots, alpha=spec.window - spec.samples * spec.sample_length)  # [B]
        index = (first + self._window[:, None]).flatten()  # [T * B]
        shape = (spec.sample_window, batch_size)
        rows = {
            # On a CPU six times as fast as plain indexing.
            name: tensor.index_select(0, index).reshape(*shape, *tensor.shape[1:])
            for name, tensor in self._rows.items()
        }  # [T, B, ...]
        return Batch(
            obs=rows["obs"],
            step_type=rows["step_type"],
            reward=rows["reward"],
            discount=rows["discount"],
            action=rows["action"],
            extras={name: rows[f"extras.{name}"] for name, _ in spec.extras},
            state={name: tensor[slots] for name, tensor in self._state.items()},
            weights=importance_weights(probabilities, beta).float(),
            indices=indices,
            generations=self._generation[slots],
        )

    def update_priorities(self, batch: Batch, priorities: Tensor) -> None:
        """Set the new priorities [B] of a batch; samples whose slot was overwritten meanwhile are left alone."""
        current = self._generation[batch.indices // self.spec.samples] == batch.generations
        self._tree.set(batch.indices, priorities.to(self.device, torch.float64), where=current)

    def oldest(self) -> dict[int, int]:
        """Per actor, the sequence number of its oldest chunk held, or still to come of a restored checkpoint."""
        oldest: dict[int, int] = {}
        for chunk_id in (*self._remembered, *self._held()):
            oldest[chunk_id.actor] = min(chunk_id.sequence, oldest.get(chunk_id.actor, chunk_id.sequence))
        return oldest

    def checkpoint(self) -> Checkpoint:
        """All chunks held, and those of a restored checkpoint that are still to come; on the CPU."""
        held = {chunk_id: slot for slot, chunk_id in enumerate(self._ids) if chunk_id is not None}
        leaves = [self._leaves_of(slot) for slot in held.values()]
        priorities = list(self._remembered.values())
        if leaves:
            priorities += self._tree.get(torch.cat(leaves)).float().cpu().reshape(-1, self.spec.samples)
        ids = torch.tensor([*self._remembered, *held], dtype=torch.int64).reshape(-1, 2)
        stacked = torch.stack(priorities) if priorities else torch.zeros(0, self.spec.samples)
        return Checkpoint(self.inserted - len(held), ids, stacked)

    def restore(self, checkpoint: Checkpoint, newest: dict[int, int]) -> None:
        """Prepare an empty replay for the chunks of a checkpoint, which are added next, in their old order.

        Chunks beyond the `newest` sequence number of their actor are lost, and others may come under their ids. Raises
        ValueError for a checkpoint that no replay of this spec has written.
        """
        first, ids, stored = checkpoint
        if type(first) is not int or not 0 <= first < 2**62:
            raise ValueError("the replay has a wrong count of chunks")
        if ids.shape != (len(stored), 2) or ids.dtype != torch.int64:
            raise ValueError("the replay's chunks are not listed as they should be")
        if stored.shape[1:] != (self.spec.samples,) or stored.dtype != torch.float32:
            raise ValueError("the replay's priorities are not those of its chunks")
        if not (stored.isfinite() & (stored >= 0)).all():
            raise ValueError("the replay has a priority that is negative or not finite")
        if not set(ids[:, 0].tolist()) <= newest.keys():
            raise ValueError("the replay has a chunk of an actor that has sent none")
        self.inserted = first
        for (actor, sequence), priorities in zip(checkpoint.ids.tolist(), checkpoint.priorities, strict=True):
            if sequence <= newest[actor]:
                self._remembered[ChunkId(actor, sequence)] = priorities

    def remembers(self, chunk_id: ChunkId) -> bool:
        """Whether a chunk belongs to the restored checkpoint and has not come yet."""
        return chunk_id in self._remembered

    def forget(self, read: Mapping[int, int]) -> None:
        """Drop what is remembered of messages that will not come any more: up to the last one `read` of each actor."""
        for actor, sequence in list(self._remembered):
            if sequence <= read.get(actor, 0):
                del self._remembered[ChunkId(actor, sequence)]

    def check_valid(self) -> None:
        """Raise ValueError if the tree, the counts and the ring disagree."""
        self._tree.check_valid()
        leaves = self._tree.get(torch.arange(self.slots * self.spec.samples, device=self.device))
        kinds = self._rows["step_type"].reshape(self.slots, self.spec.window).cpu().numpy()
        learnable = np.stack([self.spec.learnable(step_type) for step_type in kinds])
        learnable[[chunk_id is None for chunk_id in self._ids]] = False
        if learnable.sum() != self.size or list(learnable.sum(axis=1)) != self._learnable:
            raise ValueError(f"{self.size} samples counted, {learnable.sum()} held")
        if np.any(leaves.cpu().numpy()[~learnable.ravel()] != 0):
            raise ValueError("a LAST row or an empty slot has a priority")
        held = list(self._held())
        if len(set(held)) != len(held):
            raise ValueError("a chunk is held twice")

    def _held(self) -> Iterable[ChunkId]:
        return (chunk_id for chunk_id in self._ids if chunk_id is not None)

    def _leaves_of(self, slot: int) -> Tensor:
        return torch.arange(slot * self.spec.samples, (slot + 1) * self.spec.samples, device=self.device)


def _tensor(array: Array) -> Tensor:
    """A tensor of an array that may be read-only."""
    view: Any = array if array.flags.writeable else array.copy()
    return torch.from_numpy(view)


def make_tree(capacity: int, device: torch.device) -> Any:
    """Return the fastest tree for a device: a `SegmentTree`, or a `BinaryTree`, which has the same interface."""
    if device.type == "cpu":
        from memory.binary_tree import BinaryTree  # numba is loaded where there is a replay, and in no actor

        return BinaryTree(capacity)
    return SegmentTree(capacity, device, checked=False)  # looking at values would make every draw wait for the GPU

"""The rows of replay's chunks, side by side in preallocated tensors, and the windows that samples consist of.

Every window of a batch is gathered at once. `memory.fast.ring` is the twin for the machine's memory.
Letters: T rows of a window, B batch.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import Field
from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.memory.segment_tree import importance_weights


class Ring:
    """Room for `slots` chunks on a device."""

    def __init__(self, spec: ChunkSpec, fields: Mapping[str, Field], slots: int, device: torch.device) -> None:
        self.spec = spec
        self.rows = {name: _zeros(slots * spec.window, field, device) for name, field in fields.items()}
        self.state = {name: _zeros(slots, field, device) for name, field in spec.state}
        self.generation = torch.full((slots,), -1, dtype=torch.int64, device=device)
        self._window = torch.arange(spec.sample_window, device=device)

    def write(self, slot: int, chunk: Chunk, generation: int) -> None:
        """Store a chunk in the place of another."""
        start = slot * self.spec.window
        for name, array in chunk.rows.items():
            self.rows[name][start : start + self.spec.window].copy_(tensor_of(array))
        for name, array in chunk.state.items():
            self.state[name][slot].copy_(tensor_of(array))
        self.generation[slot] = generation

    def sample(self, tree: Any, batch_size: int, beta: float | Tensor, generator: torch.Generator) -> Batch:
        """Draw from a tree whose leaf s * samples + i is sample i of the chunk in slot s."""
        indices, probabilities = tree.stratified(batch_size, generator)
        slots = indices // self.spec.samples
        places = self.places(indices)
        return Batch(
            rows={name: self.gather(name, places) for name in self.rows},
            state={name: tensor[slots] for name, tensor in self.state.items()},
            weights=importance_weights(probabilities, beta).float(),
            indices=indices,
            generations=self.generation[slots],
        )

    def places(self, indices: Tensor) -> Tensor:
        """Compute the rows of the ring [T, B] that make up the windows of the samples [B]."""
        spec = self.spec
        before = (indices // spec.samples) * (spec.window - spec.samples * spec.sample_length)  # [B]
        return indices * spec.sample_length + before + self._window[:, None]

    def gather(self, name: str, places: Tensor) -> Tensor:
        """Copy the rows at the places [T, B] of one array."""
        # On a CPU six times as fast as plain indexing.
        rows = self.rows[name].index_select(0, places.flatten())
        return rows.view(*places.shape, *rows.shape[1:])


def _zeros(count: int, field: Field, device: torch.device) -> Tensor:
    shape = (count, *field.shape)
    if device.type == "cpu":
        return torch.from_numpy(np.zeros(shape, field.dtype))  # in huge pages, where the system has them for NumPy
    return torch.zeros(shape, dtype=getattr(torch, field.dtype), device=device)


def tensor_of(array: Array) -> Tensor:
    """Return a tensor of an array that may be read-only."""
    view: Any = array if array.flags.writeable else array.copy()
    return torch.from_numpy(view)

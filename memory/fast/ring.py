"""The twin of `memory.ring.Ring` in the machine's memory, and rows that are copied when they are first read.

A window is one contiguous block, copied only when it is asked for. The frames of transitions are copied straight into
stacks, in the order in which memory has them; n-step returns of clipped rewards are computed on the way. The plain code
is `agents.ops.n_step` and `agents.ops.frames`: tests/agents/test_transitions.py compares the bits. Sampling and cutting
32 transitions takes a quarter of the plain code's time. Letters: T rows of a window, B batch, S stack, n steps.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from rainbow_iqn_apex.memory.batch import Batch, Transitions
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import Field
from rainbow_iqn_apex.memory.fast import windows
from rainbow_iqn_apex.memory.ring import Ring

_IN_ORDER = 4  # terms that torch adds one after the other; the order of more depends on sizes and processors


class MemoryRing(Ring):
    """Room for chunks in the machine's memory, from which rows are copied when they are first read."""

    def __init__(self, spec: ChunkSpec, fields: Mapping[str, Field], slots: int) -> None:
        super().__init__(spec, fields, slots, torch.device("cpu"))
        self._generation = self.generation.numpy()
        obs = self.rows["obs"]
        self._rows = {name: tensor.numpy() for name, tensor in self.rows.items()}
        self._state = {name: tensor.numpy() for name, tensor in self.state.items()}
        self._numbers = [self._rows[name] for name in ("step_type", "reward", "discount", "action")]
        frame_bytes = obs[0].numel() * obs.element_size()
        self._stack_shape = (spec.stack, *obs.shape[1:])
        self._sizes = (spec.samples, spec.sample_length, spec.window, spec.prefix, spec.stack, frame_bytes)
        self._most_steps = spec.sample_window - spec.prefix - 1
        self.written = 0  # chunks, ever

    def write(self, slot: int, chunk: Chunk, generation: int) -> None:
        """Store a chunk in the place of another.

        NumPy copies: torch would wake its threads for it, and first copy arrays that are read-only, as decoded ones.
        """
        start = slot * self.spec.window
        for name, array in chunk.rows.items():
            self._rows[name][start : start + self.spec.window] = array
        for name, array in chunk.state.items():
            self._state[name][slot] = array
        self._generation[slot] = generation
        self.written += 1

    def sample(self, tree: Any, batch_size: int, beta: float | Tensor, generator: torch.Generator) -> Batch:
        """Draw from a `BinaryTree`; the rows stay in the ring until they are first read."""
        samples = self.spec.samples
        indices, ratios, generations = tree.draw_from_groups(batch_size, generator, self._generation, samples)
        state = {name: tensor[indices // samples] for name, tensor in self.state.items()} if self.state else {}
        weights = ratios.pow_(beta).float()  # as `importance_weights` has them
        return Batch(RingRows(self, indices, generations), state, weights, indices, generations)

    def windows(self, name: str, indices: Tensor) -> Tensor:
        """Copy the windows [T, B, ...] of the samples [B], of one array."""
        if self.spec.samples > 1:
            return self.gather(name, self.places(indices))
        rows = self.rows[name]
        blocks = rows.view(-1, self.spec.window, *rows.shape[1:])  # [slots, T, ...] here a whole chunk is a sample
        return blocks.index_select(0, indices).transpose(0, 1)

    def transitions(self, indices: Tensor, n: int, gamma: float, reward_clip: float) -> Transitions:
        """Cut the n-step transitions of the samples [B]: see `RingRows.transitions`."""
        if not 0 < n <= self._most_steps:
            raise ValueError(f"a sample's window has no row {n} steps ahead")
        frames, shape = self.rows["obs"], (len(indices), *self._stack_shape)
        obs, next_obs = torch.empty(shape, dtype=frames.dtype), torch.empty(shape, dtype=frames.dtype)  # [B, S, ...]
        addresses = (obs.data_ptr(), next_obs.data_ptr(), frames.data_ptr())
        terms, sums, bootstrap, action = windows.cut(
            addresses, indices.numpy(), self._sizes, n, gamma, reward_clip, *self._numbers
        )
        return_ = torch.from_numpy(sums) if n <= _IN_ORDER else torch.from_numpy(terms).sum(0)  # [B]
        return Transitions(obs, torch.from_numpy(action), return_, torch.from_numpy(bootstrap), next_obs)


class RingRows(Mapping[str, Tensor]):
    """The rows of a batch's windows, [T, B, ...] by name, each copied from the ring when it is first read.

    Rows of a chunk that was overwritten since the batch was drawn are lost: reading them raises RuntimeError.
    """

    __slots__ = ("_copied", "_generations", "_indices", "_ring", "_written")

    def __init__(self, ring: MemoryRing, indices: Tensor, generations: Tensor) -> None:
        self._ring = ring
        self._indices = indices
        self._generations = generations
        self._written = ring.written
        self._copied: dict[str, Tensor] = {}

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._copied:
            self._check()
            self._copied[name] = self._ring.windows(name, self._indices)
        return self._copied[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._ring.rows)

    def __len__(self) -> int:
        return len(self._ring.rows)

    def transitions(self, n: int, gamma: float, reward_clip: float) -> Transitions:
        """Cut the n-step transition at each window's row t, the first after the prefix, without copying the window.

        For actions of one discrete choice. Equal, bit for bit, to `agents.ops.n_step` of the clipped rewards
        (`reward_clip` 0: unclipped) and `agents.ops.frames.stack_at` of the windows.
        """
        self._check()
        return self._ring.transitions(self._indices, n, gamma, reward_clip)

    def _check(self) -> None:
        ring = self._ring
        if ring.written != self._written:
            slots = self._indices // ring.spec.samples
            if not torch.equal(ring.generation[slots], self._generations):
                raise RuntimeError("rows of this batch have been overwritten since it was drawn")

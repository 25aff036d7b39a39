"""The twin of `memory.ring.Ring` in the machine's memory, and rows that are copied when they are first read.

A window is one contiguous block, copied only when it is asked for. The frames of transitions are copied straight into
stacks, in the order in which memory has them; n-step returns of clipped rewards are computed on the way. The plain code
is `agents.ops.n_step` and `agents.ops.frames`: tests/agents/test_transitions.py compares the bits. Sampling and cutting
32 transitions takes a quarter of the plain code's time. Its machine code is made when this module is loaded. Frames
have any shape and type, so they are copied as bytes between addresses. Letters: T rows of a window, B batch, S stack,
n steps.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numba.core import cgutils, types
from numba.extending import intrinsic
from torch import Tensor

from rainbow_iqn_apex.memory.batch import Batch, Transitions
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import Field
from rainbow_iqn_apex.memory.fast.compiled import compiled
from rainbow_iqn_apex.memory.ring import Ring
from rainbow_iqn_apex.memory.rows import StepType

_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)
_IN_ORDER = 4  # terms that torch adds one after the other; the order of more depends on sizes and processors


def _copy_code(_context: Any, _target: Any, _source: Any, _count: Any) -> Any:
    def code(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        to, of = (builder.inttoptr(address, cgutils.voidptr_t) for address in arguments[:2])
        cgutils.raw_memcpy(builder, to, of, arguments[2], 1)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), code


def _clear_code(_context: Any, _target: Any, _count: Any) -> Any:
    def code(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        target = builder.inttoptr(arguments[0], cgutils.voidptr_t)
        cgutils.memset(builder, target, arguments[1], 0)  # type: ignore[no-untyped-call]
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), code


_copy: Any = intrinsic(_copy_code)  # (target, source, bytes): numba's own loop over arrays takes a quarter longer
_clear: Any = intrinsic(_clear_code)  # (target, bytes)


@compiled("void(int64, int64, UniTuple(int64, 2), int64, uint8[::1])")
def _stack(target: int, frames: int, sizes: Any, newest: int, step_type: Any) -> None:
    """Copy the frames up to a row of the ring to an address; those older than FIRST are zero."""
    size, frame_bytes = sizes
    seen = 1
    while seen < size and step_type[newest - seen + 1] != _FIRST:
        seen += 1
    hidden = (size - seen) * frame_bytes
    if hidden:
        _clear(target, hidden)
    _copy(target + hidden, frames + (newest - seen + 1) * frame_bytes, seen * frame_bytes)


@compiled(
    "Tuple((float32[:, ::1], float32[::1], float32[::1], int64[::1]))(UniTuple(int64, 3), int64[::1], "
    "UniTuple(int64, 6), int64, float32, float32, uint8[::1], float32[::1], float32[::1], int32[::1])"
)
def _cut(
    addresses: Any,
    indices: Any,
    sizes: Any,
    n: int,
    gamma: float,
    limit: float,
    step_type: Any,
    reward: Any,
    discount: Any,
    action: Any,
) -> Any:
    """Cut the n-step transitions of B samples; copy their stacks [B, S, bytes].

    `addresses` are those of both stacks and of the ring's frames. `sizes` are a chunk's samples, their length, its
    rows, those of its prefix, S, and the bytes of a frame. Rewards are clipped to ±`limit` unless that is 0. Products
    are rounded as torch rounds them: a factor γ·d to float32, what stands before a reward, too, and the running product
    to float64.

    Returns:
        The terms of the returns [n, B], their sums from the first to the last [B], bootstrap discounts and actions [B].
    """
    samples, sample_length, window, prefix, stack, frame_bytes = sizes
    obs, next_obs, frames = addresses
    batch = len(indices)
    terms = np.zeros((n, batch), np.float32)
    sums = np.zeros(batch, np.float32)
    bootstrap = np.empty(batch, np.float32)
    actions = np.empty(batch, np.int64)
    newest = np.empty((2, batch), np.int64)  # rows where the stacks end
    for b in range(batch):
        slot = indices[b] // samples
        row = slot * window + prefix + (indices[b] - slot * samples) * sample_length
        newest[0, b] = row
        actions[b] = action[row]
        product = 1.0
        rounded = np.float32(1)
        steps = 0
        while steps < n and step_type[row] != _LAST:
            row += 1
            clipped = reward[row]
            if limit > 0:
                clipped = min(max(clipped, -limit), limit)
            terms[steps, b] = rounded * clipped
            sums[b] += terms[steps, b]
            product *= gamma * discount[row]
            rounded = np.float32(product)
            steps += 1
        bootstrap[b] = rounded
        newest[1, b] = row
    for b in range(batch):  # after all the small reads, so that the processor waits for many of these at a time
        at = b * stack * frame_bytes
        _stack(obs + at, frames, (stack, frame_bytes), newest[0, b], step_type)
        _stack(next_obs + at, frames, (stack, frame_bytes), newest[1, b], step_type)
    return terms, sums, bootstrap, actions


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
        frames = self.rows["obs"]
        shape = (len(indices), *self._stack_shape)
        obs, next_obs = torch.empty(shape, dtype=frames.dtype), torch.empty(shape, dtype=frames.dtype)  # [B, S, ...]
        addresses = (obs.data_ptr(), next_obs.data_ptr(), frames.data_ptr())
        terms, sums, bootstrap, action = _cut(
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

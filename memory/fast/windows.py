"""Reads a `MemoryRing` in compiled code: n-step transitions, cut out of the ring; compiled by numba.

The machine code is made when this module is loaded. Frames have any
shape and type, so they are copied as bytes between addresses, which the caller answers for. Letters: B batch, S stack,
n steps.
"""

from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic

from rainbow_iqn_apex.memory.fast.compiled import compiled
from rainbow_iqn_apex.memory.rows import StepType

_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)


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
def cut(
    addresses: Any, indices: Any, sizes: Any, n: int, gamma: float, limit: float,
    step_type: Any, reward: Any, discount: Any, action: Any,
) -> Any:  # fmt: skip
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
    terms, sums = np.zeros((n, batch), np.float32), np.zeros(batch, np.float32)
    bootstrap, actions = np.empty(batch, np.float32), np.empty(batch, np.int64)
    newest = np.empty((2, batch), np.int64)  # rows where the stacks end
    for b in range(batch):
        slot = indices[b] // samples
        row = slot * window + prefix + (indices[b] - slot * samples) * sample_length
        newest[0, b] = row
        actions[b] = action[row]
        product, rounded, steps = 1.0, np.float32(1), 0
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

"""Reads a `MemoryRing` in compiled code: where samples are from, and n-step transitions; compiled by numba.

The machine code is made when this module is loaded, and kept beside the source as Python keeps its own. Letters: B
batch, S stack, n steps.
"""

from typing import Any

import numba
import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic

from memory.rows import StepType

_FIRST, _LAST = int(StepType.FIRST), int(StepType.LAST)


def _copy(_: Any, target: Any, source: Any) -> Any:
    """Copy one array of bytes, in one piece, to another as memcpy does: numba's own loop takes a quarter longer."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, of = (
            context.make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args, arguments, strict=True)
        )
        cgutils.raw_memcpy(  # type: ignore[no-untyped-call]
            builder, to.data, of.data, to.nitems, to.itemsize
        )
        return context.get_dummy_value()

    return types.void(target, source), code


_copy_bytes: Any = intrinsic(_copy)


@numba.njit("void(uint8[:, ::1], uint8[:, ::1], uint8[::1], int64)", nogil=True, cache=True)
def _stack(stack: Any, frames: Any, step_type: Any, newest: int) -> None:
    """Copy the frames [S, bytes] up to a row of the ring; those older than FIRST are zero."""
    seen = 1
    while seen < len(stack) and step_type[newest - seen + 1] != _FIRST:
        seen += 1
    hidden = len(stack) - seen
    stack[:hidden] = 0
    _copy_bytes(stack[hidden:], frames[newest - seen + 1 : newest + 1])


@numba.njit(
    "Tuple((float32[:, ::1], float32[::1], int64[::1]))(uint8[:, :, :, ::1], int64[::1], UniTuple(int64, 4), int64, "
    "float32, float32, uint8[:, ::1], uint8[::1], float32[::1], float32[::1], int32[::1])",
    nogil=True,
    cache=True,
)
def cut(
    stacks: Any, indices: Any, sizes: Any, n: int, gamma: float, limit: float,
    frames: Any, step_type: Any, reward: Any, discount: Any, action: Any,
) -> Any:  # fmt: skip
    """Cut the n-step transitions of B samples; copy both their stacks [2, B, S, bytes] into `stacks`.

    `sizes` are a chunk's samples, their length, its rows, and those of its prefix. Rewards are clipped to ±`limit`
    unless that is 0. Products are rounded as torch rounds them: each factor γ·d and the product before each reward to
    float32, the running product to float64.

    Returns:
        The terms of the returns [n, B], the bootstrap discounts [B] and the actions [B].
    """
    samples, sample_length, window, prefix = sizes
    batch = len(indices)
    terms = np.zeros((n, batch), np.float32)
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
            product *= gamma * discount[row]
            rounded = np.float32(product)
            steps += 1
        bootstrap[b] = rounded
        newest[1, b] = row
    for b in range(batch):  # after all small reads, so that the processor waits for many of those reads at a time
        for which in range(2):
            _stack(stacks[which, b], frames, step_type, newest[which, b])
    return terms, bootstrap, actions

"""Frame stacks: rows hold one frame each, networks see the last S of them (Mnih et al. 2015, 10.1038/nature14236).

Rule 3 of the rows: a stack stops at FIRST, frames older than it are zero. Letters: T time, B batch, S stack.
Everywhere:

    obs: [T, B, ...] any dtype, one frame a row.
    step_type: [T, B] uint8.
    size: S, the number of frames in a stack, oldest first.
"""

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.ops import FIRST
from rainbow_iqn_apex.agents.ops.shapes import check_shapes


def push_frame(stack: Tensor, obs: Tensor, first: Tensor) -> Tensor:
    """Append the newest frames o_t [B, ...] to stacks [B, S, ...], which are not changed; returns the stacks.

    Where `first` [B] bool, o_t opens an episode, and the S - 1 older frames are zero. Raises ValueError if the shapes
    do not fit, or the dtypes differ (a float frame would turn a uint8 stack into floats).
    """
    check_shapes(stack=(stack, "B S ..."), obs=(obs, "B ..."), first=(first, "B"))
    if stack.dtype != obs.dtype or first.dtype != torch.bool:
        raise ValueError(f"dtypes do not fit: stack {stack.dtype}, obs {obs.dtype}, first {first.dtype}")
    pushed = torch.cat((stack[:, 1:], obs.unsqueeze(1)), 1)  # [B, S, ...]
    _blank(pushed[:, :-1], first)
    return pushed


def stack_at(obs: Tensor, step_type: Tensor, index: Tensor, size: int) -> Tensor:
    """Build the stack [B, S, ...] that ends at one row of each of B windows: `index` [B] int64, 0 <= index < T.

    Zero are the frames older than the episode's FIRST row, and those older than row 0: unless FIRST hides them, `index`
    must be at least S - 1 for a true stack. Raises ValueError if the shapes do not fit, or `size` is not positive;
    IndexError, on the CPU, for an index outside the window.
    """
    check_shapes(obs=(obs, "T B ..."), step_type=(step_type, "T B"), index=(index, "B"))
    if size < 1:
        raise ValueError(f"a stack needs at least one frame, not {size}")
    batch = torch.arange(len(index), device=index.device).unsqueeze(1)  # [B, 1]
    rows = index.unsqueeze(1) + torch.arange(1 - size, 1, device=index.device)  # [B, S]
    first = step_type[rows.clamp(min=0), batch] == FIRST  # [B, S]
    newer = first.flip(1).cumsum(1).flip(1) - first.long()  # [B, S] FIRST rows among the frames after this one
    hidden = (newer > 0) | (rows < 0)  # [B, S]
    hidden[:, -1] = False  # the newest frame is always seen, so that a negative index is refused below
    flat = (rows.masked_fill(hidden, 0) * len(index) + batch).flatten()  # [B * S] hidden frames read row 0
    frames = obs.flatten(0, 1).index_select(0, flat).view(*hidden.shape, *obs.shape[2:])  # [B, S, ...]
    _blank(frames, hidden)
    return frames


def stacks(obs: Tensor, step_type: Tensor, size: int) -> Tensor:
    """Build the stack [T - S + 1, B, S, ...] at every row of a window that has a full one, the first for row S - 1.

    Frames older than the episode's FIRST row are zero. Raises ValueError if the shapes do not fit, or there are fewer
    rows than frames in a stack.
    """
    check_shapes(obs=(obs, "T B ..."), step_type=(step_type, "T B"))
    if not 0 < size <= len(obs):
        raise ValueError(f"a stack of {size} frames, and {len(obs)} rows")
    count = len(obs) - size + 1
    frames = torch.stack([obs[i : i + count] for i in range(size)], 2)  # [T - S + 1, B, S, ...]
    first = torch.stack([step_type[i : i + count] == FIRST for i in range(size)], 2)  # [T - S + 1, B, S]
    newer = first.flip(2).cumsum(2).flip(2) - first.long()  # FIRST rows among the frames after this one
    _blank(frames, newer > 0)
    return frames


def _blank(frames: Tensor, mask: Tensor) -> None:
    """Zero, in place, the frames where a mask over their leading axes is true."""
    mask = mask.reshape(mask.shape + (1,) * (frames.dim() - mask.dim()))
    if frames.dtype == torch.uint16:  # which PyTorch does not multiply; the bits of 0 are the same
        frames = frames.view(torch.int16)
    if frames.is_floating_point():
        frames.masked_fill_(mask, 0)
    else:  # on a CPU 30 times as fast; floats cannot go this way, because 0 · NaN is NaN
        frames.mul_(~mask)

"""Sums that decay from row to row, and what all targets of an actor-critic have in common.

Letters: T rows of a sequence, B batch.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Targets(NamedTuple):
    """Targets of a sequence's rows; nothing is learned where `learnable` is false."""

    value: Tensor  # [T, B] v_t, what V_t learns; V_t itself where not learnable
    advantage: Tensor  # [T, B] of the action; 0 where not learnable
    learnable: Tensor  # [T, B] bool: rows at which an action was chosen, if they are trusted


def accumulate(delta: Tensor, trace: Tensor) -> Tensor:
    """Compute x_t = delta_t + trace_t x_{t+1} backwards in time, from x_T = 0.

    Args:
        delta: [T, B].
        trace: [T, B]; 0 where nothing may come from the next row.

    Returns:
        [T, B].
    """
    following = torch.zeros_like(delta[0])  # [B] x_{t+1}
    sums = []
    for t in reversed(range(len(delta))):
        following = delta[t] + trace[t] * following
        sums.append(following)
    return torch.stack(sums[::-1])

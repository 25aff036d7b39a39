"""Generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438).

Letters: T rows of a sequence, B batch.
"""

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.ops import LAST
from rainbow_iqn_apex.agents.ops.shapes import check_shapes
from rainbow_iqn_apex.agents.ops.traces import Targets, accumulate


def gae(value: Tensor, reward: Tensor, discount: Tensor, step_type: Tensor, gamma: float, trace: float) -> Targets:
    """Compute GAE(lambda) and the values that it implies (equation 16), which carry no gradient.

    Where row t is not LAST, with gamma_t = gamma d_t:

        delta_t = r_{t+1} + gamma_{t+1} V_{t+1} - V_t
        advantage_t = delta_t + gamma_{t+1} lambda advantage_{t+1}
        v_t = V_t + advantage_t

    v_t is V-trace's at ratios of 1. Its advantage is not: V-trace takes r_{t+1} + gamma_{t+1} v_{t+1} - V_t, in which
    the first difference does not decay. Lambda 0 is the one-step difference, 1 the return less the value. A LAST
    row's target is its own value, as in `vtrace`.

    Args:
        value: [T + 1, B] V_t; the row after the sequence is bootstrapped from.
        reward: [T + 1, B] that arrived with each row; row 0's is not read.
        discount: [T + 1, B] that arrived with each row; row 0's is not read.
        step_type: [T + 1, B] uint8.
        gamma: the discount of an agent step.
        trace: lambda.

    Raises:
        ValueError: the shapes do not fit.
    """
    check_shapes(value=(value, "T B"), reward=(reward, "T B"), discount=(discount, "T B"), step_type=(step_type, "T B"))
    with torch.no_grad():
        learnable = step_type[:-1] != LAST  # [T, B]
        ahead = gamma * discount[1:]  # [T, B]
        delta = torch.where(learnable, reward[1:] + ahead * value[1:] - value[:-1], 0)  # [T, B]
        advantage = accumulate(delta, torch.where(learnable, trace * ahead, 0))  # [T, B]
        return Targets(value[:-1] + advantage, advantage, learnable)

"""Q(lambda): returns that bootstrap from the best action (Gallici et al. 2024, arXiv 2407.04811, algorithm 1).

Letters: T rows of a sequence, B batch.
"""

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.ops import LAST
from rainbow_iqn_apex.agents.ops.shapes import check_shapes
from rainbow_iqn_apex.agents.ops.traces import accumulate


def q_lambda(best: Tensor, reward: Tensor, discount: Tensor, step_type: Tensor, gamma: float, trace: float) -> Tensor:
    """Compute the lambda-returns [T, B] of the actions of T rows, which carry no gradient.

    Where row t is not LAST, with gamma_t = gamma d_t, and G = max_a Q at a LAST row and at row T:

        G_t = r_{t+1} + gamma_{t+1} (lambda G_{t+1} + (1 - lambda) max_a Q(s_{t+1}, a))

    Lambda 0 is one-step Q-learning, 1 the return with a bootstrap. A truncated episode (d = 1) bootstraps from its last
    observation; the authors' code (github.com/mttga/purejaxql) takes it for a true end. The trace is not cut where an
    action was not the best one (Peng's Q(lambda), as in the paper).

    Args:
        best: [T + 1, B] max_a Q(s_t, a); the row after the sequence is bootstrapped from.
        reward: [T + 1, B] that arrived with each row; row 0's is not read.
        discount: [T + 1, B] that arrived with each row; row 0's is not read.
        step_type: [T + 1, B] uint8.
        gamma: the discount of an agent step.
        trace: lambda.

    Raises:
        ValueError: the shapes do not fit.
    """
    check_shapes(best=(best, "T B"), reward=(reward, "T B"), discount=(discount, "T B"), step_type=(step_type, "T B"))
    with torch.no_grad():
        learnable = step_type[:-1] != LAST  # [T, B]
        ahead = gamma * discount[1:]  # [T, B]
        one_step = torch.where(learnable, reward[1:] + (1 - trace) * ahead * best[1:], best[:-1])  # [T, B]
        decay = torch.where(learnable, trace * ahead, 0)  # [T, B]
        ends = torch.cat((one_step, best[-1:])), torch.cat((decay, torch.zeros_like(best[-1:])))  # [T + 1, B] each
        return accumulate(*ends)[:-1]

"""V-trace: values and advantages of rows that another policy played (Espeholt et al. 2018, arXiv 1802.01561); and GAE.

Letters: T rows of a sequence, B batch. Everywhere:

    log_ratio: [T, B] log pi(a_t) - log mu(a_t).
    value: [T + 1, B] V_t; the row after the sequence is bootstrapped from.
    reward, discount: [T + 1, B] that arrived with each row; row 0's are not read.
    step_type: [T + 1, B] uint8.
    gamma: the discount of an agent step.

All raise ValueError if the shapes do not fit.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.ops import LAST
from rainbow_iqn_apex.agents.ops.shapes import check_shapes


class Targets(NamedTuple):
    """Targets of a sequence's rows; nothing is learned where `learnable` is false."""

    value: Tensor  # [T, B] v_t, what V_t learns; V_t itself where not learnable
    advantage: Tensor  # [T, B] of the action; 0 where not learnable
    learnable: Tensor  # [T, B] bool: rows at which an action was chosen, if they are trusted


def accumulate(delta: Tensor, trace: Tensor) -> Tensor:
    """Compute x_t = delta_t + trace_t x_{t+1} [T, B] of delta and trace [T, B], backwards in time, from x_T = 0."""
    following = torch.zeros_like(delta[0])  # [B] x_{t+1}
    sums = []
    for t in reversed(range(len(delta))):
        following = delta[t] + trace[t] * following
        sums.append(following)
    return torch.stack(sums[::-1])


class Thresholds(NamedTuple):
    """Truncation of the importance weights, and the decay of traces."""

    rho: float = 1.0  # of the temporal differences: fixes the policy whose values are learned
    c: float = 1.0  # of the traces: how far a difference reaches back
    advantage: float | None = 1.0  # of the policy's gradient; None: no weight, where the policy's loss has its own
    trace: float = 1.0  # lambda


def vtrace(
    log_ratio: Tensor,
    value: Tensor,
    reward: Tensor,
    discount: Tensor,
    step_type: Tensor,
    gamma: float,
    thresholds: Thresholds,
    trusted: Tensor | None = None,
) -> Targets:
    """Compute V-trace targets and advantages (remark 1 of the paper), which carry no gradient.

    Where row t is not LAST, with c_t = lambda min(c, pi/mu), rho_t = min(rho, pi/mu) and gamma_t = gamma d_t:

        delta_t = rho_t (r_{t+1} + gamma_{t+1} V_{t+1} - V_t)
        v_t = V_t + delta_t + gamma_{t+1} c_t (v_{t+1} - V_{t+1})
        advantage_t = min(rho_pg, pi/mu) (r_{t+1} + gamma_{t+1} v_{t+1} - V_t)

    A LAST row's target is its own value, so that no trace crosses an episode's end, and a truncated episode (d = 1)
    bootstraps from its last observation.

    A row that is not trusted is treated likewise (LASER, Schmitt et al. 2020, arXiv 1909.11583): delta_t = c_t = 0, its
    target is its own value, its advantage is 0, and it is not learnable. So a trusted row before it bootstraps from
    V_{t+1} alone, in its target as in its advantage: nothing that came later reaches it.

    `trusted` is [T, B] bool, as `agents.impala.losses.trusted_rows` gives it; None: all rows are.
    """
    check_shapes(value=(value, "T B"), reward=(reward, "T B"), discount=(discount, "T B"), step_type=(step_type, "T B"))
    check_shapes(log_ratio=(log_ratio, "T B"), value=(value[1:], "T B"))
    if trusted is not None:
        check_shapes(log_ratio=(log_ratio, "T B"), trusted=(trusted, "T B"))
    with torch.no_grad():
        learnable = step_type[:-1] != LAST  # [T, B]
        if trusted is not None:
            learnable &= trusted
        ratio = log_ratio.exp()  # [T, B]
        ahead = gamma * discount[1:]  # [T, B]
        delta = ratio.clamp(max=thresholds.rho) * (reward[1:] + ahead * value[1:] - value[:-1])  # [T, B]
        delta = torch.where(learnable, delta, 0)
        trace = torch.where(learnable, ahead * thresholds.trace * ratio.clamp(max=thresholds.c), 0)  # [T, B]
        target = value[:-1] + accumulate(delta, trace)  # [T, B]
        following = torch.cat((target[1:], value[-1:]))  # [T, B] v_{t+1}
        advantage = reward[1:] + ahead * following - value[:-1]  # [T, B]
        if thresholds.advantage is not None:
            advantage = ratio.clamp(max=thresholds.advantage) * advantage
        return Targets(target, torch.where(learnable, advantage, 0), learnable)


def gae(value: Tensor, reward: Tensor, discount: Tensor, step_type: Tensor, gamma: float, trace: float) -> Targets:
    """Compute GAE(lambda) and the values that it implies, which carry no gradient.

    Generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438, equation 16).

    Where row t is not LAST, with gamma_t = gamma d_t:

        delta_t = r_{t+1} + gamma_{t+1} V_{t+1} - V_t
        advantage_t = delta_t + gamma_{t+1} lambda advantage_{t+1}
        v_t = V_t + advantage_t

    v_t is V-trace's at ratios of 1. Its advantage is not: V-trace takes r_{t+1} + gamma_{t+1} v_{t+1} - V_t, in which
    the first difference does not decay. Lambda 0 is the one-step difference, 1 the return less the value. A LAST
    row's target is its own value, as in `vtrace`.
    """
    check_shapes(value=(value, "T B"), reward=(reward, "T B"), discount=(discount, "T B"), step_type=(step_type, "T B"))
    with torch.no_grad():
        learnable = step_type[:-1] != LAST  # [T, B]
        ahead = gamma * discount[1:]  # [T, B]
        delta = torch.where(learnable, reward[1:] + ahead * value[1:] - value[:-1], 0)  # [T, B]
        advantage = accumulate(delta, torch.where(learnable, trace * ahead, 0))  # [T, B]
        return Targets(value[:-1] + advantage, advantage, learnable)

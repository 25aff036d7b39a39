"""Losses of a policy from advantages, each a mean over the rows that are kept.

Letters: T rows of a sequence, B batch. Everywhere:

    log_pi: [T, B] log π(a_t), with gradient; log_ratio: [T, B] log π(a_t) - log μ(a_t), of the policy μ that acted.
    advantage: [T, B]; no gradient flows into it.
    kept: [T, B] bool, rows to learn from; what stands elsewhere may be anything. Nothing kept gives the loss 0.

All raise ValueError if the shapes differ.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from agents.ops.masks import masked_mean
from agents.ops.shapes import check_shapes


def vpg_loss(log_pi: Tensor, advantage: Tensor, kept: Tensor) -> Tensor:
    """Compute -mean(log π(a) A) [], the policy gradient (Williams 1992, 10.1007/BF00992696).

    V-trace's loss is the same with V-trace's advantages, which hold the importance weight already.
    """
    check_shapes(log_pi=(log_pi, "T B"), advantage=(advantage, "T B"), kept=(kept, "T B"))
    return -masked_mean(_only(log_pi, kept) * advantage.detach(), kept)


def ppo_loss(log_ratio: Tensor, advantage: Tensor, kept: Tensor, clip: float, log_symmetric: bool = False) -> Tensor:
    """Compute -mean(min(ratio A, clip(ratio, low, high) A)) [] (Schulman et al. 2017, arXiv 1707.06347, equation 7).

    `high` is 1 + clip. `low` is 1 - clip, or if log_symmetric 1 / (1 + clip) (Andrychowicz et al. 2020, arXiv
    2006.05990). The minimum bounds the ratio from above where A > 0, else from below. Written so, before
    the exponential, a ratio beyond all numbers that is clipped has the gradient 0 and not NaN.
    """
    check_shapes(log_ratio=(log_ratio, "T B"), advantage=(advantage, "T B"), kept=(kept, "T B"))
    low, high = _log_bounds(clip, log_symmetric)
    inside, advantage = _only(log_ratio, kept), advantage.detach()
    bounded = torch.where(advantage > 0, inside.clamp(max=high), inside.clamp(min=low))  # [T, B]
    return -masked_mean(bounded.exp() * advantage, kept)


def beyond_bounds(log_ratio: Tensor, clip: float, log_symmetric: bool = False) -> Tensor:
    """Return at which rows [T, B] the ratio is above or below the bounds of `ppo_loss`."""
    low, high = _log_bounds(clip, log_symmetric)
    return (log_ratio < low) | (log_ratio > high)


def _log_bounds(clip: float, log_symmetric: bool) -> tuple[float, float]:
    high = math.log1p(clip)
    return (-high if log_symmetric else math.log1p(-clip)), high


def awr_loss(log_pi: Tensor, advantage: Tensor, kept: Tensor, beta: float, largest: float) -> Tensor:
    """Compute -mean(min(exp(A / beta), largest) log π(a)) [] (Peng et al. 2019, arXiv 1910.00177)."""
    check_shapes(log_pi=(log_pi, "T B"), advantage=(advantage, "T B"), kept=(kept, "T B"))
    weight = (advantage.detach() / beta).clamp(max=math.log(largest)).exp()  # [T, B]
    return -masked_mean(weight * _only(log_pi, kept), kept)


class VMpoLosses(NamedTuple):
    """Both are 0-d; each has gradient into what it names alone."""

    policy: Tensor
    temperature: Tensor


def vmpo_losses(
    log_pi: Tensor, advantage: Tensor, kept: Tensor, temperature: Tensor, temperature_bound: float
) -> VMpoLosses:
    """Compute V-MPO's losses (Song et al. 2019, arXiv 1909.12238) over the rows that are kept.

    The paper keeps the better half of the rows: `kept` is then that of `agents.ops.masks.better_half`.

        psi = exp(A / eta) / Σ exp(A / eta),  policy = -Σ psi log π(a)
        temperature loss = eta · temperature_bound + eta · log mean exp(A / eta)

    Args:
        log_pi: see above.
        advantage: see above.
        kept: see above.
        temperature: [] eta > 0, with gradient.
        temperature_bound: epsilon_eta, the divergence that the weights may have from equal ones.
    """
    check_shapes(log_pi=(log_pi, "T B"), advantage=(advantage, "T B"), kept=(kept, "T B"))
    exists = kept.any()
    counted = kept | ~exists  # [T, B] all rows if none is kept: numbers without NaN, which are then taken by 0
    scaled = torch.where(kept, advantage.detach(), 0) / temperature  # [T, B]
    scaled = torch.where(counted, scaled, -torch.inf).flatten()  # [T · B]
    weight = scaled.detach().softmax(0).view_as(log_pi)  # [T, B] psi
    policy = -(weight * _only(log_pi, kept)).sum()
    log_mean = scaled.logsumexp(0) - counted.sum().to(scaled.dtype).log()
    bound = temperature * (temperature_bound + log_mean)
    return VMpoLosses(policy, torch.where(exists, bound, 0))


def _only(values: Tensor, kept: Tensor) -> Tensor:
    """Return 0 in the place of what is not kept, before anything is computed that would have an infinite gradient."""
    return torch.where(kept, values, 0)

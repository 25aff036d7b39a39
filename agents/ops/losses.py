"""Losses of a policy from advantages and of a value estimate, each a mean over the rows that are kept.

Letters: T rows of a sequence, B batch. Everywhere:

    log_pi: [T, B] log π(a_t), with gradient; log_ratio: [T, B] log π(a_t) - log μ(a_t), of the policy μ that acted.
    advantage: [T, B]; no gradient flows into it.
    kept: [T, B] bool, rows to learn from; what stands elsewhere may be anything. Nothing kept gives the loss 0.
    ranks: the learners over whose rows together the mean is; each gets its share, as of `agents.ops.masks`.

All raise ValueError if the shapes differ.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from rainbow_iqn_apex.agents.ops.masks import mean_of
from rainbow_iqn_apex.agents.ops.ranks import ALONE, Joined, Ranks
from rainbow_iqn_apex.agents.ops.shapes import check_shapes


def vpg_loss(log_pi: Tensor, advantage: Tensor, kept: Tensor, ranks: Ranks = ALONE) -> Tensor:
    """Compute -mean(log π(a) A) [], the policy gradient (Williams 1992, 10.1007/BF00992696).

    V-trace's loss is the same with V-trace's advantages, which hold the importance weight already.
    """
    check_shapes(log_pi=(log_pi, "T B"), advantage=(advantage, "T B"), kept=(kept, "T B"))
    return -mean_of(_only(log_pi, kept) * _only(advantage.detach(), kept), kept, ranks)


def clipped_surrogate(
    log_ratio: Tensor, advantage: Tensor, kept: Tensor, clip: float, log_symmetric: bool = False
) -> Tensor:
    """Compute min(ratio A, clip(ratio, low, high) A) [T, B] (Schulman et al. 2017, arXiv 1707.06347, equation 7).

    It is to be made large, and is 0 where not kept; `ppo_loss` is minus its mean.

    `high` is 1 + clip. `low` is 1 - clip, or if log_symmetric 1 / (1 + clip) (Andrychowicz et al. 2020, arXiv
    2006.05990). The minimum bounds the ratio from above where A > 0, else from below. Written so, before
    the exponential, a ratio beyond all numbers that is clipped has the gradient 0 and not NaN.
    """
    check_shapes(log_ratio=(log_ratio, "T B"), advantage=(advantage, "T B"), kept=(kept, "T B"))
    low, high = _log_bounds(clip, log_symmetric)
    inside, advantage = _only(log_ratio, kept), _only(advantage.detach(), kept)  # [T, B] each
    bounded = torch.where(advantage > 0, inside.clamp(max=high), inside.clamp(min=low))  # [T, B]
    return bounded.exp() * advantage


def ppo_loss(
    log_ratio: Tensor, advantage: Tensor, kept: Tensor, clip: float, log_symmetric: bool = False, ranks: Ranks = ALONE
) -> Tensor:
    """Compute -mean(min(ratio A, clip(ratio, low, high) A)) []; see `clipped_surrogate`."""
    return -mean_of(clipped_surrogate(log_ratio, advantage, kept, clip, log_symmetric), kept, ranks)


def impact_log_ratio(log_pi: Tensor, log_target: Tensor, log_mu: Tensor, rho: float) -> Tensor:
    """Compute log R [T, B], R = min(μ / π_target, rho) π / μ (IMPACT: Luo et al. 2020, arXiv 1912.00167).

    IMPACT's objective is the clipped surrogate of R and of V-trace's advantage with the log ratio log_target - log_mu,
    which holds the weight min(rho_pg, π_target / μ) already: R is the rest, π / π_target. Neither weight is π / μ,
    which would count it twice. V-trace's values are those of the network that learns, as in RLlib.

    It is computed as R = π / max(π_target, μ / rho): π_target counts as no less than μ / rho. RLlib's APPO multiplies
    two exponentials, each of which may be infinite; else its ratio is the same. If π_target = μ and rho >= 1, R is
    PPO's ratio.

    Args:
        log_pi: [T, B] log π(a_t), with gradient.
        log_target: [T, B] log π_target(a_t), of a copy of the network that is renewed now and then; no gradient.
        log_mu: [T, B] log μ(a_t), recorded while acting; no gradient.
        rho: the largest μ / π_target; 2 in the paper.
    """
    check_shapes(log_pi=(log_pi, "T B"), log_target=(log_target, "T B"), log_mu=(log_mu, "T B"))
    return log_pi - torch.maximum(log_target, log_mu - math.log(rho)).detach()


def beyond_bounds(log_ratio: Tensor, clip: float, log_symmetric: bool = False) -> Tensor:
    """Return at which rows [T, B] the ratio is above or below the bounds of `ppo_loss`."""
    low, high = _log_bounds(clip, log_symmetric)
    return (log_ratio < low) | (log_ratio > high)


def _log_bounds(clip: float, log_symmetric: bool) -> tuple[float, float]:
    high = math.log1p(clip)
    return (-high if log_symmetric else math.log1p(-clip)), high


def awr_loss(
    log_pi: Tensor, advantage: Tensor, kept: Tensor, beta: float, largest: float, ranks: Ranks = ALONE
) -> Tensor:
    """Compute -mean(min(exp(A / beta), largest) log π(a)) [] (Peng et al. 2019, arXiv 1910.00177)."""
    check_shapes(log_pi=(log_pi, "T B"), advantage=(advantage, "T B"), kept=(kept, "T B"))
    weight = (_only(advantage.detach(), kept) / beta).clamp(max=math.log(largest)).exp()  # [T, B]
    return -mean_of(weight * _only(log_pi, kept), kept, ranks)


class VMpoLosses(NamedTuple):
    """Both are 0-d; each has gradient into what it names alone."""

    policy: Tensor
    temperature: Tensor


def vmpo_losses(
    log_pi: Tensor, advantage: Tensor, kept: Tensor, temperature: Tensor, temperature_bound: float, ranks: Ranks = ALONE
) -> VMpoLosses:
    """Compute V-MPO's losses (Song et al. 2019, arXiv 1909.12238) over the rows that are kept.

    The paper keeps the better half of the rows: `kept` is then that of `agents.ops.masks.better_half`.

        psi = exp(A / eta) / Σ exp(A / eta),  policy = -Σ psi log π(a)
        temperature loss = eta · temperature_bound + eta · log mean exp(A / eta)

    `temperature` [] is eta > 0, with gradient; `temperature_bound` is epsilon_eta, the divergence that the weights may
    have from equal ones.
    """
    check_shapes(log_pi=(log_pi, "T B"), advantage=(advantage, "T B"), kept=(kept, "T B"))
    joined = Joined(ranks, torch.where(kept, advantage.detach(), 0).flatten())  # [N] of all ranks
    kept_of_all = torch.cat(ranks.gather(kept.flatten()))  # [N]
    exists = kept_of_all.any()
    counted = kept_of_all | ~exists  # [N] all rows if none is kept: numbers without NaN, which are then taken by 0
    scaled = torch.where(counted, joined.all / temperature, -torch.inf)  # [N]
    weight = joined.own(scaled.detach().softmax(0)).view_as(log_pi)  # [T, B] psi
    policy = -(weight * _only(log_pi, kept)).sum() * ranks.size
    log_mean = scaled.logsumexp(0) - counted.sum().to(scaled.dtype).log()
    bound = temperature * (temperature_bound + log_mean)
    return VMpoLosses(policy, torch.where(exists, bound, 0))


def _only(values: Tensor, kept: Tensor) -> Tensor:
    """Return 0 in the place of what is not kept, before anything is computed that would have an infinite gradient."""
    return torch.where(kept, values, 0)


class ValueClip(NamedTuple):
    """How far a value may move from what was recorded while acting before its loss stops to fall."""

    recorded: Tensor  # [T, B] the acting network's value
    distance: float


def value_loss(
    value: Tensor,
    target: Tensor,
    kept: Tensor,
    huber: float | None = None,
    clip: ValueClip | None = None,
    ranks: Ranks = ALONE,
) -> Tensor:
    """Compute the mean loss [] of value - target over the rows that are kept.

    The loss of a row is half the error's square, or Huber's, which is linear beyond `huber`. With a clip it is the
    larger one of two: the value's, and that of the value clipped to within `distance` of the recorded one (Andrychowicz
    et al. 2020, arXiv 2006.05990). No gradient flows into the target.
    """
    check_shapes(value=(value, "T B"), target=(target, "T B"), kept=(kept, "T B"))
    value, target = torch.where(kept, value, 0), torch.where(kept, target.detach(), 0)  # [T, B]
    losses = _losses(value, target, huber)  # [T, B]
    if clip is not None:
        check_shapes(value=(value, "T B"), recorded=(clip.recorded, "T B"))
        recorded = torch.where(kept, clip.recorded, 0)  # [T, B]
        near = recorded + (value - recorded).clamp(-clip.distance, clip.distance)  # [T, B]
        losses = torch.maximum(losses, _losses(near, target, huber))
    return mean_of(losses, kept, ranks)


def _losses(value: Tensor, target: Tensor, huber: float | None) -> Tensor:
    if huber is None:
        return 0.5 * functional.mse_loss(value, target, reduction="none")
    return functional.huber_loss(value, target, reduction="none", delta=huber)

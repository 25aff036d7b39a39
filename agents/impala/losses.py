"""The loss of IMPALA, with the terms that replayed rows add to it.

CLEAR (Rolnick et al. 2019, arXiv 1811.11682), LASER (Schmitt et al. 2020, arXiv 1909.11583) and IMPACT (Luo et al.
2020, arXiv 1912.00167). `--loss-reduction mean` divides each term's sum over its own rows by one number: of all rows
of the batch at which an action was chosen. So the terms weigh against each other what they weigh in the papers' sums,
whatever the share of rows that are replayed, or trusted. A row that LASER rejects adds no policy gradient, no value
error and no entropy. LASER takes the entropy of fresh rows alone; here trusted replayed rows have theirs, as in CLEAR.
Letters: T rows of an unroll, B batch, A actions. Everywhere:

    log_pi_all: [T, B, A] log π(a), of the policy that learns; log_mu_all: [T, B, A] log μ(a), recorded while acting.
    kept: [T, B] bool, rows to learn from; what stands elsewhere may be anything.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.distributions import kl_divergence
from rainbow_iqn_apex.agents.impala.options import ImpalaOptions
from rainbow_iqn_apex.agents.ops import LAST
from rainbow_iqn_apex.agents.ops.losses import clipped_surrogate, impact_log_ratio
from rainbow_iqn_apex.agents.ops.masks import masked_mean, row_count
from rainbow_iqn_apex.agents.ops.ranks import ALONE, Ranks
from rainbow_iqn_apex.agents.ops.shapes import check_shapes
from rainbow_iqn_apex.agents.ops.vtrace import Targets, Thresholds, vtrace

Metrics = dict[str, Tensor]  # 0-d


def policy_cloning(log_pi_all: Tensor, log_mu_all: Tensor, kept: Tensor) -> Tensor:
    """Compute KL(μ‖π) [T, B], the loss that keeps a policy near the one that acted (CLEAR: Rolnick et al. 2019).

    arXiv 1811.11682: Σ_a μ(a) (log μ(a) - log π(a)). It has gradient into log_pi_all alone.
    A recorded logarithm above 0 belongs to no probability, and counts as 0: the loss of a forged message is finite.
    """
    check_shapes(log_pi_all=(log_pi_all, "T B A"), log_mu_all=(log_mu_all, "T B A"), kept=(kept, "T B"))
    inside = kept.unsqueeze(2)  # [T, B, 1]
    log_pi = torch.where(inside, log_pi_all, 0)  # [T, B, A]
    log_mu = torch.where(inside, log_mu_all.detach(), 0).clamp(max=0)  # [T, B, A]
    return kl_divergence(log_mu, log_pi)


def value_cloning(value: Tensor, recorded: Tensor, kept: Tensor) -> Tensor:
    """Compute (V_μ - V)² [T, B], the loss that keeps values near the recorded ones (CLEAR: Rolnick et al. 2019).

    arXiv 1811.11682, which writes ‖V - V_μ‖²: each row's square, and no norm over the batch.

    Args:
        value: [T, B] V, with gradient.
        recorded: [T, B] V_μ of the network that acted; no gradient flows into it.
        kept: see above.
    """
    check_shapes(value=(value, "T B"), recorded=(recorded, "T B"), kept=(kept, "T B"))
    return torch.where(kept, value - recorded.detach(), 0).square()


def trusted_rows(log_pi_all: Tensor, log_mu_all: Tensor, threshold: float) -> Tensor:
    """Return where KL(π‖μ) < threshold [T, B] bool: LASER's trust region (Schmitt et al. 2020, arXiv 1909.11583).

    A divergence that is not a number is not trusted. `agents.ops.vtrace.vtrace` takes the answer.
    """
    check_shapes(log_pi_all=(log_pi_all, "T B A"), log_mu_all=(log_mu_all, "T B A"))
    with torch.no_grad():
        return kl_divergence(log_pi_all, log_mu_all) < threshold


class Played(NamedTuple):
    """Holds what the loss needs of a batch's rows; r and d arrived with their row."""

    reward: Tensor  # [T + 1, B] as the loss counts it
    discount: Tensor  # [T + 1, B]
    step_type: Tensor  # [T + 1, B] uint8
    action: Tensor  # [T, B] int64
    log_mu: Tensor  # [T, B, A] of the policy that acted
    value: Tensor | None  # [T, B] of the network that acted
    replayed: Tensor | None  # [B] bool: drawn again; None: all rows are fresh


class Computed(NamedTuple):
    """Holds what the networks make of the rows now."""

    log_policy: Tensor  # [T, B, A]
    value: Tensor  # [T + 1, B]
    log_target: Tensor | None  # [T, B, A] of IMPACT's target network


class Loss(NamedTuple):
    """A batch's loss, which has gradient, and what came out beside it."""

    total: Tensor  # 0-d
    targets: Targets
    metrics: Metrics


class Losses:
    """Computes the loss as the options have it; gamma is the discount of an agent step.

    Of several `ranks` each gets its share of what is computed over the rows of all: the mean of the shares is it.
    """

    def __init__(self, options: ImpalaOptions, gamma: float, ranks: Ranks = ALONE) -> None:
        self._options = options
        self._ranks = ranks
        self._gamma = gamma
        self._thresholds = Thresholds(
            options.rho_threshold, options.c_threshold, options.advantage_threshold, options.trace_lambda
        )

    def __call__(self, played: Played, now: Computed, entropy_cost: Tensor | float) -> Loss:
        """Return the sum of all terms but that of a learned entropy's weight."""
        options = self._options
        log_pi, log_mu = (_chosen(log, played.action) for log in (now.log_policy, played.log_mu))  # [T, B]
        log_target = log_pi if now.log_target is None else _chosen(now.log_target, played.action)  # [T, B]
        targets = self._targets(played, now, log_target - log_mu)
        kept = targets.learnable
        chosen = played.step_type[:-1] != LAST
        is_mean = options.loss_reduction == "mean"
        rows = row_count(chosen, self._ranks) if is_mean else 1 / self._ranks.size  # by which sums are divided
        entropy = -(now.log_policy.exp() * now.log_policy).sum(2)  # [T, B]
        if now.log_target is None:
            objective = log_pi * targets.advantage
        else:
            log_ratio = impact_log_ratio(log_pi, log_target, log_mu, options.impact_rho)
            objective = clipped_surrogate(log_ratio, targets.advantage, kept, options.impact_clip)
        policy_loss = -_reduce(objective, kept, rows)
        value_loss = 0.5 * _reduce((targets.value - now.value[:-1]).square(), kept, rows)
        loss = policy_loss + options.baseline_cost * value_loss
        if options.kl_cost:
            loss = loss + options.kl_cost * _reduce(log_mu - log_pi, kept, rows)
        metrics = {"value": self._mean(now.value[:-1], kept), "entropy": self._mean(entropy, kept)}
        loss = loss - entropy_cost * _reduce(entropy, kept, rows)
        if played.replayed is not None:
            cloning, cloned = self._clone(played, now, chosen & played.replayed, rows)
            loss = loss + cloning
            metrics = metrics | cloned
        if options.trust_threshold:
            metrics["trusted"] = self._mean(kept.float(), chosen)
        metrics |= {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss}
        return Loss(loss, targets, metrics)

    def _targets(self, played: Played, now: Computed, log_ratio: Tensor) -> Targets:
        threshold = self._options.trust_threshold
        trusted = trusted_rows(now.log_policy, played.log_mu, threshold) if threshold else None
        return vtrace(
            log_ratio,
            now.value,
            played.reward,
            played.discount,
            played.step_type,
            self._gamma,
            self._thresholds,
            trusted,
        )

    def _clone(
        self, played: Played, now: Computed, kept: Tensor, rows: Tensor | float
    ) -> tuple[Tensor | float, Metrics]:
        """Return CLEAR's losses over the replayed rows at which an action was chosen, `kept`, and their metrics."""
        options = self._options
        metrics = Metrics()
        loss: Tensor | float = 0.0
        if options.policy_cloning_cost:
            losses = policy_cloning(now.log_policy, played.log_mu, kept)  # [T, B]
            loss = loss + options.policy_cloning_cost * _reduce(losses, kept, rows)
            metrics["policy_cloning_loss"] = self._mean(losses, kept)
        if options.value_cloning_cost:
            assert played.value is not None, "the agent's chunks record values"
            losses = value_cloning(now.value[:-1], played.value, kept)  # [T, B]
            loss = loss + options.value_cloning_cost * _reduce(losses, kept, rows)
            metrics["value_cloning_loss"] = self._mean(losses, kept)
        return loss, metrics

    def _mean(self, values: Tensor, kept: Tensor) -> Tensor:
        return masked_mean(values, kept, self._ranks)


def _chosen(log_policy: Tensor, action: Tensor) -> Tensor:
    """Return the log-probabilities [T, B] of the actions taken."""
    return log_policy.gather(2, action.unsqueeze(2)).squeeze(2)


def _reduce(losses: Tensor, kept: Tensor, rows: Tensor | float) -> Tensor:
    """Return the sum of losses [T, B] over the rows kept, divided by the number of rows."""
    return torch.where(kept, losses, 0).sum() / rows

"""What the on-policy family learns of a round: its rows, their advantages and values, and the loss.

All of it is put together from the options. Letters: T rows and B sequences of a round, or T rows and B batch of an
update (perhaps one row of single rows), P parameters of a policy's distribution.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rainbow_iqn_apex.agents.distributions import Distribution, PolicySpec
from rainbow_iqn_apex.agents.networks.core import Inputs
from rainbow_iqn_apex.agents.on_policy.options import OnPolicyOptions
from rainbow_iqn_apex.agents.on_policy.statistics import PopArt
from rainbow_iqn_apex.agents.ops.losses import (
    ValueClip,
    awr_loss,
    beyond_bounds,
    ppo_loss,
    value_loss,
    vmpo_losses,
    vpg_loss,
)
from rainbow_iqn_apex.agents.ops.masks import better_half, masked_mean, normalised
from rainbow_iqn_apex.agents.ops.multipliers import Constraint, PositiveNumber
from rainbow_iqn_apex.agents.ops.n_step import n_step_targets
from rainbow_iqn_apex.agents.ops.ranks import ALONE, Ranks
from rainbow_iqn_apex.agents.ops.vtrace import Targets, Thresholds, gae, vtrace

_START = 1.0  # of learned weights, and of V-MPO's temperature
_SPEED = 10.0  # of the same
_HUBER = 1.0


class RoundRows(NamedTuple):
    """Holds what updates read of each row at which an action may have been chosen, [T * B, ...]."""

    inputs: Inputs  # of the network
    raw: Tensor  # [T * B, ...] sample of the policy that acted, before it became an action
    parameters: Tensor  # [T * B, P] of that policy
    log_mu: Tensor  # [T * B] log-probability of raw in that policy
    value: Tensor  # [T * B] at the round's beginning
    advantage: Tensor  # [T * B]
    target: Tensor  # [T * B] of the value
    learnable: Tensor  # [T * B] bool

    def at(self, places: Tensor) -> "RoundRows":
        """Return the rows [t, n, ...] at some places [t, n] int64."""
        inputs, *fields = self
        return RoundRows(Inputs(*(part[places] for part in inputs)), *(field[places] for field in fields))

    def split(self, sizes: Sequence[int]) -> Iterator["RoundRows"]:
        """Yield rows [t, n, ...] in parts of these sizes along n: views, as to gather each part anew costs more."""
        inputs, *fields = self
        parts = zip(*(part.split_with_sizes(sizes, 1) for part in (*inputs, *fields)), strict=True)
        for part in parts:
            yield RoundRows(Inputs(*part[: len(inputs)]), *part[len(inputs) :])


def estimate(
    options: OnPolicyOptions,
    log_ratio: Tensor,
    value: Tensor,
    reward: Tensor,
    discount: Tensor,
    step_type: Tensor,
    gamma: float,
) -> Targets:
    """Estimate a round's targets; arguments as of `agents.ops.vtrace.vtrace`.

    V-trace's advantages have the importance weight for the policy gradient alone: PPO's loss has a ratio of its own,
    and V-MPO and AWR weigh rows by how good they were.
    """
    arrived = (value, reward, discount, step_type, gamma)
    if options.advantage == "gae":
        return gae(*arrived, options.trace_lambda)
    if options.advantage == "n-step":
        return n_step_targets(*arrived, options.advantage_steps)
    rho = options.rho_threshold
    of_policy = rho if options.policy_loss == "vpg" else None
    thresholds = Thresholds(rho, options.c_threshold, of_policy, options.trace_lambda)
    return vtrace(log_ratio, *arrived, thresholds)


class Predictions(NamedTuple):
    """Holds what the network computed of an update's rows."""

    parameters: Tensor  # [T, B, P], with gradient
    value: Tensor  # [T, B], with gradient
    reference: Tensor | None  # [T, B, P] of the reference policy


class Losses(nn.Module):
    """Adds up the losses of policy and value and the regularisers; holds what is learned beside the network."""

    def __init__(
        self, options: OnPolicyOptions, policy: PolicySpec, generator: torch.Generator, ranks: Ranks = ALONE
    ) -> None:
        super().__init__()
        self._options = options
        self._policy = policy
        self._generator = generator
        self._ranks = ranks
        self._bounds = (options.clip_epsilon, options.clip_form == "logarithmic")  # of PPO's ratio
        self.temperature = PositiveNumber(_START, _SPEED) if options.policy_loss == "vmpo" else None
        least_entropy = -options.target_entropy if options.target_entropy else None
        chosen = {
            "entropy": _regulariser(options.entropy_cost, least_entropy, ranks),
            "kl": _regulariser(options.kl_cost, options.kl_limit or None, ranks),
            "reverse_kl": _regulariser(options.reverse_kl_cost, options.reverse_kl_limit or None, ranks),
            "reference_kl": _regulariser(options.reference_kl_cost, options.reference_kl_limit or None, ranks),
        }
        self._chosen = {name: price for name, price in chosen.items() if price}
        learned = {name: price for name, price in self._chosen.items() if isinstance(price, Constraint)}
        self.regularisers = nn.ModuleDict(learned)

    def forward(
        self, rows: RoundRows, predictions: Predictions, popart: PopArt | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of an update's rows [T, B, ...], and metrics."""
        pi = self._policy.distribution(predictions.parameters)
        advantage = popart.scale_advantage(rows.advantage) if popart else rows.advantage  # [T, B]
        policy_loss, metrics = self._policy_loss(rows._replace(advantage=advantage), pi)
        value_loss_ = self._value_loss(rows, predictions.value, popart)
        loss = policy_loss + self._options.baseline_cost * value_loss_
        for name, price in self._chosen.items():
            quantity = self._quantity(name, rows, predictions, pi)
            loss = loss + (price(quantity) if isinstance(price, Constraint) else price * quantity)
            metrics[name] = -quantity if name == "entropy" else quantity
            if isinstance(price, Constraint):
                metrics[f"{name}_cost"] = price.price()
        return loss, metrics | {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss_}

    @torch.no_grad()
    def report(self, rows: RoundRows, predictions: Predictions) -> dict[str, Tensor]:
        """Return metrics of the rows [T, B, ...] of any number of updates, of what no loss needs."""
        pi = self._policy.distribution(predictions.parameters)
        metrics = {"value": self._mean(predictions.value, rows)}
        if self._options.policy_loss == "ppo":
            beyond = beyond_bounds(pi.log_prob(rows.raw) - rows.log_mu, *self._bounds)
            metrics["clipped"] = self._mean(beyond.float(), rows)
        for name in ("entropy", "kl"):
            if name not in self._chosen:
                quantity = self._quantity(name, rows, predictions, pi)
                metrics[name] = -quantity if name == "entropy" else quantity
        return metrics

    def _policy_loss(self, rows: RoundRows, pi: Distribution) -> tuple[Tensor, dict[str, Tensor]]:
        options = self._options
        kept = rows.learnable
        advantage = rows.advantage
        if options.normalise_advantages:
            advantage = normalised(advantage, kept, self._ranks)
        if options.kept_advantages == "positive":
            kept = kept & (advantage > 0)
        elif options.kept_advantages == "better-half":
            kept = better_half(advantage, kept, self._ranks)
        log_pi = pi.log_prob(rows.raw)  # [T, B]
        if options.policy_loss == "ppo":
            return ppo_loss(log_pi - rows.log_mu, advantage, kept, *self._bounds, self._ranks), {}
        if options.policy_loss == "awr":
            return awr_loss(log_pi, advantage, kept, options.awr_temperature, options.awr_limit, self._ranks), {}
        if self.temperature is not None:
            temperature = self.temperature()
            policy, bound = vmpo_losses(log_pi, advantage, kept, temperature, options.vmpo_epsilon, self._ranks)
            return policy + bound, {"temperature": temperature}
        return vpg_loss(log_pi, advantage, kept, self._ranks), {}

    def _value_loss(self, rows: RoundRows, value: Tensor, popart: PopArt | None) -> Tensor:
        options = self._options
        scaled = popart.normalise if popart else lambda values: values
        clip = ValueClip(scaled(rows.value), options.value_clip) if options.value_clip else None
        huber = _HUBER if options.value_loss == "huber" else None
        return value_loss(scaled(value), scaled(rows.target), rows.learnable, huber, clip, self._ranks)

    def _quantity(self, name: str, rows: RoundRows, predictions: Predictions, pi: Distribution) -> Tensor:
        """Return what may be regularised: minus the entropy, or a divergence; a mean over the rows []."""
        if name == "entropy":
            return self._mean(-pi.entropy(self._generator), rows)
        if name == "reference_kl":
            assert predictions.reference is not None
            return self._mean(self._policy.distribution(predictions.reference).kl(pi), rows)
        mu = self._policy.distribution(rows.parameters)
        return self._mean(mu.kl(pi) if name == "kl" else pi.kl(mu), rows)

    def _mean(self, values: Tensor, rows: RoundRows) -> Tensor:
        return masked_mean(values, rows.learnable, self._ranks)


def _regulariser(weight: float, bound: float | None, ranks: Ranks) -> Constraint | float:
    """Return a constraint for a bound, else the weight, which may be 0."""
    return weight if bound is None else Constraint(bound, weight or _START, _SPEED, ranks)

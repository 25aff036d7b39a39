"""The loss of the on-policy family, put together from its options.

Letters: T rows and B batch of an update (or one row of single rows), P parameters of a policy's distribution.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from agents.distributions.distribution import Distribution
from agents.distributions.spec import PolicySpec
from agents.on_policy.options import OnPolicyOptions
from agents.on_policy.rounds import Played
from agents.ops.masks import better_half, masked_mean, normalised, positive_rows
from agents.ops.multipliers import Constraint, FixedWeight, PositiveNumber
from agents.ops.policy_losses import awr_loss, beyond_bounds, ppo_loss, vmpo_losses, vpg_loss
from agents.ops.popart import PopArt
from agents.ops.value_losses import ValueClip, value_loss

_START = 1.0  # of learned weights, and of V-MPO's temperature
_SPEED = 10.0  # of the same
_HUBER = 1.0


class Look(NamedTuple):
    """Holds what the network says of an update's rows."""

    parameters: Tensor  # [T, B, P], with gradient
    value: Tensor  # [T, B], with gradient
    reference: Tensor | None  # [T, B, P] of the reference policy


class Losses(nn.Module):
    """Adds up the losses of policy and value and the regularisers; holds what is learned beside the network."""

    def __init__(self, options: OnPolicyOptions, policy: PolicySpec, generator: torch.Generator) -> None:
        super().__init__()
        self._options, self._policy, self._generator = options, policy, generator
        self.temperature = PositiveNumber(_START, _SPEED) if options.policy_loss == "vmpo" else None
        chosen = {
            "entropy": _regulariser(options.entropy_cost, -options.target_entropy if options.target_entropy else None),
            "kl": _regulariser(options.kl_cost, options.kl_limit or None),
            "reverse_kl": _regulariser(options.reverse_kl_cost, options.reverse_kl_limit or None),
            "reference_kl": _regulariser(options.reference_kl_cost, options.reference_kl_limit or None),
        }
        self.regularisers = nn.ModuleDict({name: module for name, module in chosen.items() if module is not None})

    def forward(self, rows: Played, look: Look, popart: PopArt | None) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of an update's rows [T, B, ...], and metrics."""
        pi, mu = (self._policy.distribution(of) for of in (look.parameters, rows.parameters))
        policy_loss, metrics = self._policy_loss(rows, pi, mu)
        value_loss_ = self._value_loss(rows, look.value, popart)
        loss = policy_loss + self._options.baseline_cost * value_loss_
        for name, quantity in self._quantities(rows, look, pi, mu).items():
            metrics[name] = -quantity if name == "entropy" else quantity
            if name in self.regularisers:
                regulariser = self.regularisers[name]
                loss = loss + regulariser(quantity)
                if isinstance(regulariser, Constraint):
                    metrics[f"{name}_cost"] = regulariser.price()
        metrics |= {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss_}
        return loss, {"value": masked_mean(look.value, rows.learnable)} | metrics

    def _policy_loss(self, rows: Played, pi: Distribution, mu: Distribution) -> tuple[Tensor, dict[str, Tensor]]:
        options, kept, advantage = self._options, rows.learnable, rows.advantage
        if options.normalise_advantages:
            advantage = normalised(advantage, kept)
        if options.kept_advantages != "all":
            kept = (positive_rows if options.kept_advantages == "positive" else better_half)(advantage, kept)
        log_pi = pi.log_prob(rows.raw)  # [T, B]
        if options.policy_loss == "ppo":
            log_ratio = log_pi - mu.log_prob(rows.raw)  # [T, B]
            bounds = (options.clip_epsilon, options.clip_form == "logarithmic")
            clipped = masked_mean(beyond_bounds(log_ratio, *bounds).float(), kept)
            return ppo_loss(log_ratio, advantage, kept, *bounds), {"clipped": clipped}
        if options.policy_loss == "awr":
            return awr_loss(log_pi, advantage, kept, options.awr_temperature, options.awr_limit), {}
        if self.temperature is not None:
            temperature = self.temperature()
            policy, bound = vmpo_losses(log_pi, advantage, kept, temperature, options.vmpo_epsilon)
            return policy + bound, {"temperature": temperature}
        return vpg_loss(log_pi, advantage, kept), {}

    def _value_loss(self, rows: Played, value: Tensor, popart: PopArt | None) -> Tensor:
        options = self._options
        scaled = popart.normalise if popart else lambda values: values
        clip = ValueClip(scaled(rows.value), options.value_clip) if options.value_clip else None
        huber = _HUBER if options.value_loss == "huber" else None
        return value_loss(scaled(value), scaled(rows.target), rows.learnable, huber, clip)

    def _quantities(self, rows: Played, look: Look, pi: Distribution, mu: Distribution) -> dict[str, Tensor]:
        """Return what may be regularised: minus the entropy, and divergences; each a mean over the rows []."""
        found: dict[str, Callable[[], Tensor]] = {
            "entropy": lambda: -pi.entropy(self._generator), "kl": lambda: mu.kl(pi)
        }  # fmt: skip
        if "reverse_kl" in self.regularisers:
            found["reverse_kl"] = lambda: pi.kl(mu)
        if (reference := look.reference) is not None:
            found["reference_kl"] = lambda: self._policy.distribution(reference).kl(pi)
        quantities = {}
        for name, quantity in found.items():
            with torch.set_grad_enabled(name in self.regularisers):  # others are only reported
                quantities[name] = masked_mean(quantity(), rows.learnable)
        return quantities


def _regulariser(weight: float, bound: float | None) -> nn.Module | None:
    """Return a constraint for a bound, else a fixed weight; None if there is neither."""
    if bound is not None:
        return Constraint(bound, weight or _START, _SPEED)
    return FixedWeight(weight) if weight else None

"""Munchausen reinforcement learning (Vieillard, Pietquin and Geist 2020, arXiv 2007.14430), with quantiles.

π(·|s) = softmax(q(s, ·) / τ) is the policy of a network's values q, the means of its quantiles.
Letters: N quantiles, B batch, A actions.
"""

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.ops.shapes import check_shapes


def munchausen_bonus(values: Tensor, action: Tensor, alpha: float, temperature: float, lowest: float) -> Tensor:
    """Compute α · clip(τ log π(a|s), l₀, 0), which is added to the reward of an action.

    Args:
        values: [B, A] float, q(s, ·).
        action: [B] int64, a.
        alpha: α in [0, 1].
        temperature: τ > 0.
        lowest: l₀ <= 0.

    Returns:
        [B].

    Raises:
        ValueError: the shapes do not fit.
    """
    check_shapes(values=(values, "B A"), action=(action, "B"))
    log_policy = scaled_log_policy(values, temperature).gather(1, action.unsqueeze(1)).squeeze(1)  # [B]
    return alpha * log_policy.clamp(lowest, 0)


def soft_quantiles(quantiles: Tensor, temperature: float) -> Tensor:
    """Compute Σ_a π(a|s) (z(s, a) - τ log π(a|s)) for each quantile z; for τ -> 0 those of the best action.

    Args:
        quantiles: [N, B, A] float.
        temperature: τ > 0.

    Returns:
        [N, B].

    Raises:
        ValueError: the shapes do not fit.
    """
    check_shapes(quantiles=(quantiles, "N B A"))
    log_policy = scaled_log_policy(quantiles.mean(0), temperature)  # [B, A]
    return ((log_policy / temperature).exp() * (quantiles - log_policy)).sum(2)


def scaled_log_policy(values: Tensor, temperature: float) -> Tensor:
    """Return τ log π(·|s) [B, A] of values [B, A], finite for any temperature."""
    return temperature * torch.log_softmax(values / temperature, 1)

"""The quantile Huber loss, one pair of quantiles at a time (arXiv 1806.06923, equation 3)."""

import numpy as np

from rainbow_iqn_apex.memory.rows import Array


def quantile_huber_loss(quantiles: Array, taus: Array, targets: Array, kappa: float) -> Array:
    """Loss [B] of quantiles [N, B] at taus [N, B] against targets [M, B]."""
    losses = np.zeros(quantiles.shape[1])
    for b in range(quantiles.shape[1]):
        for tau, quantile in zip(taus[:, b], quantiles[:, b], strict=True):
            over_targets = 0.0
            for target in targets[:, b]:
                delta = target - quantile
                huber = 0.5 * delta**2 if abs(delta) <= kappa else kappa * (abs(delta) - 0.5 * kappa)
                indicator = 1.0 if delta < 0 else 0.0
                over_targets += abs(tau - indicator) * huber / kappa
            losses[b] += over_targets / len(targets)
    return losses

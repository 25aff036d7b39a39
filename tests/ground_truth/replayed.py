"""Losses and masks of replayed rows, row by row and action by action, from probabilities [T, B, A]."""

import math

import numpy as np

from rainbow_iqn_apex.memory.rows import Array


def kl(p: Array, q: Array) -> float:
    """Return KL(p‖q) of two distributions [A]."""
    return sum(float(p[a]) * math.log(p[a] / q[a]) for a in range(len(p)))


def policy_cloning(pi: Array, mu: Array, kept: Array) -> Array:
    """Return KL(μ‖π) [T, B] of the rows kept, else 0 (arXiv 1811.11682)."""
    losses = np.zeros(kept.shape)
    for t, b in np.argwhere(kept):
        losses[t, b] = kl(mu[t, b], pi[t, b])
    return losses


def value_cloning(value: Array, recorded: Array, kept: Array) -> Array:
    """Return the squared error [T, B] of the rows kept, else 0 (arXiv 1811.11682)."""
    losses = np.zeros(kept.shape)
    for t, b in np.argwhere(kept):
        losses[t, b] = (recorded[t, b] - value[t, b]) ** 2
    return losses


def trusted(pi: Array, mu: Array, threshold: float) -> Array:
    """Return [T, B] bool, false where KL(π‖μ) >= threshold (arXiv 1909.11583)."""
    T, B, _ = pi.shape
    return np.array([[not kl(pi[t, b], mu[t, b]) >= threshold for b in range(B)] for t in range(T)])


def shared_mean(losses: Array, chosen: Array) -> float:
    """Return the sum of a term's losses [T, B], 0 at rows without it, over the number of all rows chosen at."""
    rows = sum(bool(chosen[t, b]) for t in range(chosen.shape[0]) for b in range(chosen.shape[1]))
    return sum(float(loss) for loss in losses.flatten()) / rows

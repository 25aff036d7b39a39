"""Munchausen's terms, one sample and one action at a time (arXiv 2007.14430, equation 1 and section 3)."""

import math

import numpy as np

from rainbow_iqn_apex.memory.rows import Array


def policy(values: Array, temperature: float) -> list[float]:
    """Probabilities [A] of softmax(values / temperature)."""
    largest = max(values)
    parts = [math.exp((value - largest) / temperature) for value in values]
    return [part / sum(parts) for part in parts]


def bonus(values: Array, action: Array, alpha: float, temperature: float, lowest: float) -> Array:
    """alpha * clip(temperature * log pi(a|s), lowest, 0) [B] of values [B, A] and actions [B]."""
    found = np.zeros(len(values))
    for b, (row, chosen) in enumerate(zip(values, action, strict=True)):
        probability = policy(row, temperature)[chosen]
        log = temperature * math.log(probability) if probability > 0 else -math.inf
        found[b] = alpha * min(0.0, max(lowest, log))
    return found


def soft_quantiles(quantiles: Array, temperature: float) -> Array:
    """Expectation [N, B] under the policy of quantiles [N, B, A], with its entropy."""
    found = np.zeros(quantiles.shape[:2])
    for n, b in np.ndindex(*found.shape):
        probabilities = policy(quantiles[:, b].mean(0), temperature)
        for z, probability in zip(quantiles[n, b], probabilities, strict=True):
            found[n, b] += probability * (z - temperature * math.log(probability)) if probability > 0 else 0.0
    return found

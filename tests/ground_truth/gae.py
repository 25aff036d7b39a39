"""GAE as it is defined, a mixture of k-step advantages (Schulman et al. 2016, arXiv 1506.02438, equation 16)."""

from typing import NamedTuple

import numpy as np

from rainbow_iqn_apex.memory.rows import Array, StepType


class Rows(NamedTuple):
    """A sequence of one environment: T + 1 rows, of which the last is only bootstrapped from."""

    value: Array  # [T + 1]
    reward: Array  # [T + 1]
    discount: Array  # [T + 1]
    step_type: Array  # [T + 1]


def steps_ahead(rows: Rows, t: int) -> int:
    """Count the actions from row t to the episode's LAST row, or to the sequence's end."""
    steps = 0
    while t + steps < len(rows.value) - 1 and rows.step_type[t + steps] != StepType.LAST:
        steps += 1
    return steps


def k_step_advantage(rows: Rows, t: int, k: int, gamma: float) -> float:
    """Return r_{t+1} + γ r_{t+2} + ... + γ^k V_{t+k} - V_t (equations 11 to 14), with the discounts of the rows."""
    total, weight = -rows.value[t], 1.0
    for i in range(1, k + 1):
        total += weight * rows.reward[t + i]
        weight *= gamma * rows.discount[t + i]
    return float(total + weight * rows.value[t + k])


def n_step(rows: Rows, gamma: float, n: int) -> Array:
    """Return advantages [T] over n steps, or as many as there are; 0 at LAST."""
    return np.array(
        [k_step_advantage(rows, t, min(n, steps_ahead(rows, t)), gamma) for t in range(len(rows.value) - 1)]
    )


def gae(rows: Rows, gamma: float, trace: float) -> Array:
    """Return advantages [T]: (1 - λ) Σ_k λ^{k-1} A^(k), where the longest takes the weight of all beyond it."""
    advantages = np.zeros(len(rows.value) - 1)
    for t in range(len(advantages)):
        longest = steps_ahead(rows, t)
        for k in range(1, longest + 1):
            weight = (1 - trace) * trace ** (k - 1) if k < longest else trace ** (longest - 1)
            advantages[t] += weight * k_step_advantage(rows, t, k, gamma)
    return advantages

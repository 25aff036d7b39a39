"""V-trace by its definition, a sum over whole episodes (Espeholt et al. 2018, arXiv 1802.01561, equation 1)."""

import numpy as np

from rainbow_iqn_apex.memory.rows import Array, StepType
from tests.ground_truth.gae import Rows


def vtrace(
    rows: Rows, ratio: Array, gamma: float, rho: float, c: float, rho_advantage: float | None, trace: float,
    trusted: Array | None = None,
) -> tuple[Array, Array]:  # fmt: skip
    """Return v [T] and the weighted advantages [T], each as a sum of weighted differences up to the episode's end.

    The ratios are pi / mu [T]. Without a threshold of their own, advantages are not weighted.

    Rows that are not trusted [T] end sums as the episode's end does (LASER, Schmitt et al. 2020, arXiv 1909.11583).
    """
    T = len(ratio)
    if trusted is not None:
        rows = rows._replace(step_type=rows.step_type.copy())
        rows.step_type[:T][~trusted] = StepType.LAST
    v = [_target(rows, ratio, t, gamma, rho, c, trace) for t in range(T)]
    advantages = np.zeros(T)
    for t in range(T):
        if rows.step_type[t] != StepType.LAST:
            following = v[t + 1] if t + 1 < T else rows.value[T]
            ahead = gamma * rows.discount[t + 1]
            weight = 1 if rho_advantage is None else min(rho_advantage, ratio[t])
            advantages[t] = weight * (rows.reward[t + 1] + ahead * following - rows.value[t])
    return np.array(v), advantages


def _target(rows: Rows, ratio: Array, s: int, gamma: float, rho: float, c: float, trace: float) -> float:
    total = rows.value[s]
    for t in range(s, len(ratio)):
        if rows.step_type[t] == StepType.LAST:
            break
        weight = 1.0
        for i in range(s, t):
            weight *= gamma * rows.discount[i + 1] * trace * min(c, ratio[i])
        difference = rows.reward[t + 1] + gamma * rows.discount[t + 1] * rows.value[t + 1] - rows.value[t]
        total += weight * min(rho, ratio[t]) * difference
    return float(total)

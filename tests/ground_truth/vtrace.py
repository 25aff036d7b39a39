"""V-trace by its definition, a sum over whole episodes (Espeholt et al. 2018, arXiv 1802.01561, equation 1)."""

from typing import NamedTuple

import numpy as np

from rainbow_iqn_apex.memory.rows import Array, StepType


class Rows(NamedTuple):
    """A sequence of one environment: T + 1 rows, of which the last is only bootstrapped from."""

    ratio: Array  # [T] pi / mu
    value: Array  # [T + 1]
    reward: Array  # [T + 1]
    discount: Array  # [T + 1]
    step_type: Array  # [T + 1]


def vtrace(
    rows: Rows, gamma: float, rho: float, c: float, rho_advantage: float, trace: float, trusted: Array | None = None
) -> tuple[Array, Array]:
    """Return v [T] and the weighted advantages [T], each as a sum of weighted differences up to the episode's end.

    Rows that are not trusted [T] end sums as the episode's end does (LASER, Schmitt et al. 2020, arXiv 1909.11583).
    """
    T = len(rows.ratio)
    if trusted is not None:
        rows = rows._replace(step_type=rows.step_type.copy())
        rows.step_type[:T][~trusted] = StepType.LAST
    v = [_target(rows, t, gamma, rho, c, trace) for t in range(T)]
    advantages = np.zeros(T)
    for t in range(T):
        if rows.step_type[t] != StepType.LAST:
            following = v[t + 1] if t + 1 < T else rows.value[T]
            ahead = gamma * rows.discount[t + 1]
            advantages[t] = min(rho_advantage, rows.ratio[t]) * (rows.reward[t + 1] + ahead * following - rows.value[t])
    return np.array(v), advantages


def _target(rows: Rows, s: int, gamma: float, rho: float, c: float, trace: float) -> float:
    total = rows.value[s]
    for t in range(s, len(rows.ratio)):
        if rows.step_type[t] == StepType.LAST:
            break
        weight = 1.0
        for i in range(s, t):
            weight *= gamma * rows.discount[i + 1] * trace * min(c, rows.ratio[i])
        difference = rows.reward[t + 1] + gamma * rows.discount[t + 1] * rows.value[t + 1] - rows.value[t]
        total += weight * min(rho, rows.ratio[t]) * difference
    return float(total)

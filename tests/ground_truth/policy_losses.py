"""Losses of policies row by row, as their papers write them; the lists hold only rows that are learned from."""

import math
from collections.abc import Sequence

Numbers = Sequence[float]


def ppo(ratio: Numbers, advantage: Numbers, low: float, high: float) -> float:
    """Return the negative of equation 7 of arXiv 1707.06347."""
    rows = zip(ratio, advantage, strict=True)
    return -sum(min(r * a, min(max(r, low), high) * a) for r, a in rows) / len(ratio)


def awr(log_pi: Numbers, advantage: Numbers, beta: float, largest: float) -> float:
    """Return the mean of the weighted negative log-probabilities (arXiv 1910.00177)."""
    rows = zip(log_pi, advantage, strict=True)
    return -sum(min(math.exp(a / beta), largest) * log for log, a in rows) / len(log_pi)


def vmpo(log_pi: Numbers, advantage: Numbers, eta: float, bound: float) -> tuple[float, float]:
    """Return the losses of policy and temperature over the better half of the rows (arXiv 1909.12238)."""
    rows = sorted(zip(advantage, log_pi, strict=True), reverse=True)[: (len(log_pi) + 1) // 2]
    weights = [math.exp(a / eta) for a, _ in rows]
    policy = -sum(weight / sum(weights) * log for weight, (_, log) in zip(weights, rows, strict=True))
    return policy, eta * bound + eta * math.log(sum(weights) / len(rows))


def value(values: Numbers, targets: Numbers, recorded: Numbers | None, distance: float, huber: float | None) -> float:
    """Return the mean loss of values, pessimistic if there are recorded ones."""
    total = 0.0
    for i, (v, target) in enumerate(zip(values, targets, strict=True)):
        loss = _error(v - target, huber)
        if recorded is not None:
            near = min(max(v, recorded[i] - distance), recorded[i] + distance)
            loss = max(loss, _error(near - target, huber))
        total += loss
    return total / len(values)


def _error(error: float, huber: float | None) -> float:
    if huber is None or abs(error) <= huber:
        return 0.5 * error**2
    return huber * (abs(error) - 0.5 * huber)

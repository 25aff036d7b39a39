"""Priorities in a plain array: what a sum tree must agree with."""

import numpy as np

from rainbow_iqn_apex.memory.rows import Array


class PriorityArray:
    """Write, add up and search, one leaf at a time."""

    def __init__(self, capacity: int) -> None:
        self.values = np.zeros(capacity)

    def set(self, indices: Array, values: Array) -> None:
        for index, value in zip(indices, values, strict=True):
            self.values[index] = value

    def total(self) -> float:
        return float(sum(self.values))

    def find(self, value: float) -> int:
        """The leaf in which `value` falls, the leaves laid end to end."""
        end = 0.0
        for index, priority in enumerate(self.values):
            end += priority
            if value < end:
                return index
        raise ValueError(f"{value} is beyond {end}")


def importance_weights(probabilities: Array, size: int, beta: float) -> Array:
    """(1 / (N · P))^β over its maximum (arXiv 1511.05952, section 3.4)."""
    weights = np.array([(1 / size * 1 / p) ** beta for p in probabilities])
    return np.asarray(weights / max(weights))

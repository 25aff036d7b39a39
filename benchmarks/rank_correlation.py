"""Spearman's rank correlation."""

import numpy as np

from rainbow_iqn_apex.memory.rows import Array


def ranks(values: Array) -> Array:
    """The place of each value among all, from 1; equal values share the mean of their places."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)  # place of the last of each group of equals
    means: Array = last - (counts - 1) / 2
    return means[inverse]


def spearman(a: Array, b: Array) -> float:
    """The correlation of the ranks; NaN where all values of one side are equal, or there are fewer than two."""
    if len(a) != len(b):
        raise ValueError(f"{len(a)} values cannot be compared with {len(b)}")
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])

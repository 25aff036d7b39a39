"""The projection of C51, one atom at a time (arXiv 1707.06887, algorithm 1)."""

import math

import numpy as np

from rainbow_iqn_apex.memory.rows import Array


def project(support: Array, probabilities: Array, return_: Array, discount: Array, as_printed: bool = False) -> Array:
    """Project what B distributions [B, A] become onto the support [A]; `as_printed` loses mass where b = l = u."""
    v_min, v_max = support[0], support[-1]
    delta_z = (v_max - v_min) / (len(support) - 1)
    projected = np.zeros_like(probabilities)
    for row, mass, r, d in zip(projected, probabilities, return_, discount, strict=True):
        for z, p in zip(support, mass, strict=True):
            b = (min(max(r + d * z, v_min), v_max) - v_min) / delta_z
            lower, upper = math.floor(b), math.ceil(b)
            if lower == upper and not as_printed:
                row[lower] += p
            else:
                row[lower] += p * (upper - b)
                row[upper] += p * (b - lower)
    return projected

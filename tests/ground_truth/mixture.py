"""Elite and attentive replay as they are defined, one sequence after the other, in NumPy and plain numbers."""

import math
from fractions import Fraction

import numpy as np

from rainbow_iqn_apex.memory.rows import Array


def p_norm(reference: Array, present: Array, p: float) -> float:
    """Return (Σ |x − y|^p)^(1/p) of two feature vectors."""
    total = 0.0
    for x, y in zip(reference.tolist(), present.tolist(), strict=True):
        total += abs(x - y) ** p
    return float(total ** (1 / p))


def cosine(reference: Array, present: Array, p: float) -> float:  # noqa: ARG001 - the others have one
    """Return 1 − x·y / (|x| |y|) of two feature vectors; 1 if one is zero."""
    lengths = math.sqrt(sum(x * x for x in reference.tolist())) * math.sqrt(sum(y * y for y in present.tolist()))
    return (
        1 - float(sum(x * y for x, y in zip(reference.tolist(), present.tolist(), strict=True))) / lengths
        if lengths
        else 1.0
    )


def kl(reference: Array, present: Array, p: float) -> float:  # noqa: ARG001 - the others have one
    """Return Σ P log(P / Q), where P is the softmax of the reference and Q that of the present features."""
    P, Q = (np.exp(x - x.max()) / np.exp(x - x.max()).sum() for x in (reference.astype(float), present.astype(float)))
    return float(sum(a * math.log(a / b) for a, b in zip(P, Q, strict=True)))


DISTANCES = {"p-norm": p_norm, "cosine": cosine, "kl": kl}


def distance(name: str, reference: Array, present: Array, learnable: Array, p: float) -> Array:
    """Return the mean distance over the learnable rows of each sequence [B]; features are [T, B, F]."""
    result = np.zeros(present.shape[1])
    for b in range(present.shape[1]):
        rows = [DISTANCES[name](reference[t, b], present[t, b], p) for t in np.flatnonzero(learnable[:, b])]
        result[b] = sum(rows) / len(rows) if rows else 0
    return result


def nb_candidates(n: int, start: str, updates: int, annealed_over: int, available: int) -> int:
    """Return ⌊λ n⌋ of at least n and at most all candidates; `start` is λ at first, as a decimal number."""
    first = Fraction(start)
    now = Fraction(1) if updates >= annealed_over else first - (first - 1) * updates / annealed_over
    return min(available, max(n, int(now * n)))


def select(strategy: int, distances: list[float], times: list[int], n: int) -> list[int]:
    """Return the n candidates that a strategy chooses, in its order; those that are too few repeat."""
    candidates = list(range(len(distances)))
    nearest = sorted(candidates, key=lambda c: (distances[c], c))
    if strategy in (1, 3):
        ranked = nearest if strategy == 1 else sorted(nearest, key=lambda c: times[c])
        return [ranked[i % len(ranked)] for i in range(n)]
    chosen = []
    for i in range(n):
        part = nearest[i * len(nearest) // n : max((i + 1) * len(nearest) // n, i * len(nearest) // n + 1)]
        chosen.append(part[0] if strategy == 2 else min(part, key=lambda c: times[c]))
    return chosen

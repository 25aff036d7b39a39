"""Elite sampling: of some candidates, drawn uniformly, those whose features the present network has changed least.

`select` never waits for the device. Letters: C candidates, n sequences to choose.
"""

import math
from fractions import Fraction

import torch
from torch import Tensor


def nb_candidates(n: int, start: float, updates: int, annealed_over: int, available: int) -> int:
    """Count the candidates for n sequences: ⌊λ n⌋, at least n, at most those `available`.

    λ falls linearly from `start` to 1 over `annealed_over` updates, of which `updates` have been made, and stays
    there: then the candidates are the batch, and sampling is uniform. `start` counts as the decimal number that it is
    written as, so 2.3 · 10 is 23.
    """
    remaining = 1 - Fraction(min(updates, annealed_over), annealed_over)
    factor = 1 + (Fraction(str(start)) - 1) * remaining
    return min(max(n, math.floor(factor * n)), available)


def draw(available: int, count: int, generator: torch.Generator) -> Tensor:
    """Draw numbers below `available` uniformly: [count] int64 on the generator's device.

    None comes twice before all have come: of fewer than `count`, each comes ⌊count / available⌋ times or once more.
    """
    order = torch.randperm(available, generator=generator, device=generator.device)  # [available]
    return order[torch.arange(count, device=order.device) % available]


def select(strategy: int, distances: Tensor, times_sampled: Tensor, n: int) -> Tensor:
    """Choose n of C candidates.

    Strategy 1: those of the n smallest distances. 2: sorted by distance, cut into n equal parts, the first of each. 3:
    as 1, but those sampled least often come first. 4: as 2, but the least often sampled of each part. Part i begins at
    ⌊i C / n⌋. Of equal candidates the first counts. No candidate is chosen twice unless there are fewer than n: then
    each is chosen ⌊n / C⌋ times or once more, where strategies 1 and 3 give the surplus to those that come first.

    Args:
        strategy: 1 to 4.
        distances: [C] float, C >= 1.
        times_sampled: [C] int64.
        n: 1 at least.

    Returns:
        [n] int64 in [0, C).

    Raises:
        ValueError: a shape does not fit, there is no candidate, or no such strategy.
    """
    if distances.dim() != 1 or distances.shape != times_sampled.shape or not len(distances):
        raise ValueError(f"distances {tuple(distances.shape)} and counts {tuple(times_sampled.shape)} must be [C]")
    if strategy not in (1, 2, 3, 4) or n < 1:
        raise ValueError(f"there is no strategy {strategy} for {n} sequences")
    order = distances.argsort(stable=True)  # [C]
    places = torch.arange(n, device=order.device)  # [n]
    if strategy in (3, 4):
        order = order[times_sampled[order].argsort(stable=True)]
    if strategy in (1, 3):
        return order[places % len(order)]
    starts = places * len(order) // n  # [n]
    if strategy == 4:
        order = order[_parts(distances, starts)[order].argsort(stable=True)]
    return order[starts]


def _parts(distances: Tensor, starts: Tensor) -> Tensor:
    """Return for each candidate [C] the number of its part, where the parts of the sorted ones begin at [n]."""
    order = distances.argsort(stable=True)  # [C]
    ranks = torch.arange(len(order), device=order.device)  # [C]
    parts = torch.empty_like(order)
    parts[order] = torch.searchsorted(starts, ranks, right=True) - 1
    return parts

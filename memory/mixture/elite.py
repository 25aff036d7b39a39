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
    places, ranks = (torch.arange(count, device=order.device) for count in (n, len(order)))  # [n], [C]
    starts = places * len(order) // n  # [n]
    if strategy in (3, 4):
        ranks = times_sampled[order].argsort(stable=True)  # [C]
    if strategy in (1, 3):
        return order[ranks[places % len(order)]]
    if strategy == 4:
        ranks = ranks[torch.searchsorted(starts, ranks, right=True).argsort(stable=True)]
    return order[ranks[starts]]

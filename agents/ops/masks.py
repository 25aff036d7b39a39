"""Means and selections among rows, some of which are never learned from, and the division of rows into minibatches.

A mask `kept` is bool and is true at rows that count. No mean or selection looks at a value outside of the device. Of
several `ranks` the rows are those of all together: a mean's share of each rank is returned, and the mean over ranks of
these shares is the mean over all rows. All raise ValueError if the shapes differ. Letters: T rows of a sequence, B
sequences.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.ops.ranks import ALONE, Joined, Ranks
from rainbow_iqn_apex.agents.ops.shapes import check_shapes


def masked_mean(values: Tensor, kept: Tensor, ranks: Ranks = ALONE) -> Tensor:
    """Return the mean [] of values [...] where kept [...]; 0 if nothing is. What is not kept may be anything."""
    check_shapes(values=(values, "..."), kept=(kept, "..."))
    return mean_of(torch.where(kept, values, 0), kept, ranks)


def mean_of(values: Tensor, kept: Tensor, ranks: Ranks = ALONE) -> Tensor:
    """Return the mean [] of values [...] where kept [...]; 0 if nothing is. What is not kept has to be 0."""
    return values.sum() / row_count(kept, ranks)


def row_count(kept: Tensor, ranks: Ranks = ALONE) -> Tensor:
    """Return the number [] of rows that are kept, on average over the ranks; never 0, as it divides sums."""
    return ranks.mean(kept.sum()).clamp(min=1 / ranks.size)


def normalised(advantage: Tensor, kept: Tensor, ranks: Ranks = ALONE) -> Tensor:
    """Return advantages [...] with mean 0 and standard deviation 1 over the rows that are kept; 0 elsewhere.

    The rows are those of a minibatch (Andrychowicz et al. 2020, arXiv 2006.05990).
    """
    centred = torch.where(kept, advantage - ranks.mean(masked_mean(advantage, kept, ranks)), 0)
    return centred / (ranks.mean(mean_of(centred.square(), kept, ranks)).sqrt() + 1e-8)


def better_half(advantage: Tensor, kept: Tensor, ranks: Ranks = ALONE) -> Tensor:
    """Return which of the rows kept [...] have the larger advantages: half of them, of an odd number the larger half.

    V-MPO, Song et al. 2019, arXiv 1909.12238. Equal advantages are told apart by their place.
    """
    check_shapes(advantage=(advantage, "..."), kept=(kept, "..."))
    joined = Joined(ranks, torch.where(kept, advantage, -torch.inf).flatten())
    ordered = joined.all.argsort(descending=True, stable=True)  # [N] places, of all ranks
    place = torch.empty_like(ordered).scatter_(0, ordered, torch.arange(len(ordered), device=ordered.device))  # [N]
    count = (ranks.mean(kept.sum()) * ranks.size).round()
    return kept & joined.own(place < (count + 1) // 2).view_as(kept)


def deal_rows(learnable: Tensor, parts: int, generator: torch.Generator, ranks: Ranks = ALONE) -> Iterator[Tensor]:
    """Yield, for each of so many updates, places [1, N] int64 among rows [T * B], shuffled: all learnable ones once.

    Where there are fewer learnable rows than updates, an update has one row: some of the round's messages are lost.
    """
    check_shapes(learnable=(learnable, "T B"))
    places = learnable.flatten().nonzero().squeeze(1)  # [rows]
    order = torch.randperm(len(places), generator=generator, device=places.device)  # [rows]
    for chosen in places[order].tensor_split(_least(parts, len(places), ranks)):
        yield chosen.unsqueeze(0)


def deal_sequences(learnable: Tensor, parts: int, generator: torch.Generator, ranks: Ranks = ALONE) -> Iterator[Tensor]:
    """Yield, for each of so many updates, places [T, b] int64 among rows [T * B]: whole sequences, shuffled.

    Each update gets as many long sequences and as many short ones: where episodes end within a round, its last rows are
    sequences of a few rows, and an update of these alone would count each of them as much as a row among a hundred.
    Where there are fewer sequences than updates, an update has one sequence.
    """
    check_shapes(learnable=(learnable, "T B"))
    T, B = learnable.shape
    device = learnable.device
    parts = _least(parts, B, ranks)
    shuffled = torch.randperm(B, generator=generator, device=device)  # [B]
    lengths = learnable.sum(0)[shuffled]  # [B]
    columns = shuffled[lengths.argsort(stable=True, descending=True)]  # [B], the longest first
    turns = torch.rand(-(-B // parts), parts, generator=generator, device=device).argsort(1).flatten()[:B]  # [B]
    rows = torch.arange(T, device=device).unsqueeze(1) * B  # [T, 1]
    for part in range(parts):
        yield rows + columns[turns == part]


def _least(parts: int, count: int, ranks: Ranks) -> int:
    """Return into how many parts all ranks divide what they have, as each part is of an update that they make together.

    No part is empty.
    """
    return int(ranks.least(torch.tensor(min(parts, count))))

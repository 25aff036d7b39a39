"""Means and selections among rows, some of which are never learned from.

A mask `kept` is bool and is true at rows that count. None of these looks at a value outside of the device.
"""

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.ops.shapes import check_shapes


def masked_mean(values: Tensor, kept: Tensor) -> Tensor:
    """Return the mean [] of values [...] where kept [...]; 0 if nothing is. What is not kept may be anything.

    Raises:
        ValueError: the shapes differ.
    """
    check_shapes(values=(values, "..."), kept=(kept, "..."))
    return mean_of(torch.where(kept, values, 0), kept)


def mean_of(values: Tensor, kept: Tensor) -> Tensor:
    """Return the mean [] of values [...] where kept [...]; 0 if nothing is. What is not kept has to be 0."""
    return values.sum() / kept.sum().clamp(min=1)


def normalised(advantage: Tensor, kept: Tensor) -> Tensor:
    """Return advantages [...] with mean 0 and standard deviation 1 over the rows that are kept; 0 elsewhere.

    The rows are those of a minibatch (Andrychowicz et al. 2020, arXiv 2006.05990).

    Raises:
        ValueError: the shapes differ.
    """
    centred = torch.where(kept, advantage - masked_mean(advantage, kept), 0)
    return centred / (mean_of(centred.square(), kept).sqrt() + 1e-8)


def positive_rows(advantage: Tensor, kept: Tensor) -> Tensor:
    """Return which of the rows kept [...] have an advantage above 0."""
    return kept & (advantage > 0)


def better_half(advantage: Tensor, kept: Tensor) -> Tensor:
    """Return which of the rows kept [...] have the larger advantages: half of them, of an odd number the larger half.

    V-MPO, Song et al. 2019, arXiv 1909.12238. Equal advantages are told apart by their place.

    Raises:
        ValueError: the shapes differ.
    """
    check_shapes(advantage=(advantage, "..."), kept=(kept, "..."))
    ordered = torch.where(kept, advantage, -torch.inf).flatten().argsort(descending=True, stable=True)  # [N] places
    rank = torch.empty_like(ordered).scatter_(0, ordered, torch.arange(len(ordered), device=ordered.device))  # [N]
    return kept & (rank < (kept.sum() + 1) // 2).view_as(kept)

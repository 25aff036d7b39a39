"""How the rows of a round are dealt out to updates.

Letters: T rows of a sequence, B sequences.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.ops.ranks import ALONE, Ranks
from rainbow_iqn_apex.agents.ops.shapes import check_shapes


def deal_rows(learnable: Tensor, parts: int, generator: torch.Generator, ranks: Ranks = ALONE) -> Iterator[Tensor]:
    """Yield, for each of so many updates, places [1, N] int64 among rows [T * B], shuffled: all learnable ones once.

    Where there are fewer learnable rows than updates, an update has one row: some of the round's messages are lost.
    """
    check_shapes(learnable=(learnable, "T B"))
    places = learnable.flatten().nonzero().squeeze(1)  # [rows]
    for chosen in _dealt(places, parts, generator, ranks):
        yield chosen.unsqueeze(0)


def deal_sequences(learnable: Tensor, parts: int, generator: torch.Generator, ranks: Ranks = ALONE) -> Iterator[Tensor]:
    """Yield, for each of so many updates, places [T, b] int64 among rows [T * B]: whole sequences, shuffled.

    Where there are fewer sequences than updates, an update has one sequence.
    """
    check_shapes(learnable=(learnable, "T B"))
    T, B = learnable.shape
    rows = torch.arange(T, device=learnable.device).unsqueeze(1) * B  # [T, 1]
    for chosen in _dealt(torch.arange(B, device=learnable.device), parts, generator, ranks):
        yield rows + chosen


def _dealt(places: Tensor, parts: int, generator: torch.Generator, ranks: Ranks) -> Iterator[Tensor]:
    """Yield the parts, of which all ranks have the same number, as each is of one update that they make together."""
    order = torch.randperm(len(places), generator=generator, device=places.device)
    yield from places[order].tensor_split(int(ranks.least(torch.tensor(min(parts, len(places))))))

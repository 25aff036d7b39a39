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

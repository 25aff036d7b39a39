"""A round's rows as the on-policy family learns from them, and how they are dealt out to updates.

Letters: T rows of a sequence, B sequences, P parameters.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.networks.core import Inputs
from rainbow_iqn_apex.agents.ops.ranks import ALONE, Ranks
from rainbow_iqn_apex.agents.ops.shapes import check_shapes


class Played(NamedTuple):
    """Holds what updates read of each row at which an action may have been chosen, [T * B, ...]."""

    inputs: Inputs  # of the network
    raw: Tensor  # [T * B, ...] sample of the policy that acted, before it became an action
    parameters: Tensor  # [T * B, P] of that policy
    log_mu: Tensor  # [T * B] log-probability of raw in that policy
    value: Tensor  # [T * B] at the round's beginning
    advantage: Tensor  # [T * B]
    target: Tensor  # [T * B] of the value
    learnable: Tensor  # [T * B] bool

    def at(self, places: Tensor) -> "Played":
        """Return the rows [t, n, ...] at some places [t, n] int64."""
        inputs, *fields = self
        return Played(Inputs(*(part[places] for part in inputs)), *(field[places] for field in fields))

    def split(self, sizes: Sequence[int]) -> Iterator["Played"]:
        """Yield rows [t, n, ...] in parts of these sizes along n: views, as to gather each part anew costs more."""
        inputs, *fields = self
        parts = zip(*(part.split_with_sizes(sizes, 1) for part in (*inputs, *fields)), strict=True)
        for part in parts:
            yield Played(Inputs(*part[: len(inputs)]), *part[len(inputs) :])


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

"""A round's rows as the on-policy family learns from them.

Letters: T rows of a sequence, B sequences, P parameters.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from torch import Tensor

from rainbow_iqn_apex.agents.networks.core import Inputs


class RoundRows(NamedTuple):
    """Holds what updates read of each row at which an action may have been chosen, [T * B, ...]."""

    inputs: Inputs  # of the network
    raw: Tensor  # [T * B, ...] sample of the policy that acted, before it became an action
    parameters: Tensor  # [T * B, P] of that policy
    log_mu: Tensor  # [T * B] log-probability of raw in that policy
    value: Tensor  # [T * B] at the round's beginning
    advantage: Tensor  # [T * B]
    target: Tensor  # [T * B] of the value
    learnable: Tensor  # [T * B] bool

    def at(self, places: Tensor) -> "RoundRows":
        """Return the rows [t, n, ...] at some places [t, n] int64."""
        inputs, *fields = self
        return RoundRows(Inputs(*(part[places] for part in inputs)), *(field[places] for field in fields))

    def split(self, sizes: Sequence[int]) -> Iterator["RoundRows"]:
        """Yield rows [t, n, ...] in parts of these sizes along n: views, as to gather each part anew costs more."""
        inputs, *fields = self
        parts = zip(*(part.split_with_sizes(sizes, 1) for part in (*inputs, *fields)), strict=True)
        for part in parts:
            yield RoundRows(Inputs(*part[: len(inputs)]), *part[len(inputs) :])

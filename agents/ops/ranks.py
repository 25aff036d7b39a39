"""What an update computes over the batches of several learners, each of which is a rank and has its share of the batch.

    rows = ranks.mean(kept.sum())             # an average instead of a sum: so a loss divided by it ...
    loss = losses.sum() / rows
    ranks.average(gradients)                  # ... has, after this, the gradient of the mean over all batches together

All ranks make the same calls in the same order, with tensors of the same shapes. No gradient passes through them.
Implemented by `programs.learner.world`.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


class Ranks(Protocol):
    """The learners that make an update together."""

    rank: int  # of this one
    size: int  # how many there are

    def mean(self, numbers: Tensor) -> Tensor:
        """Return the mean over all ranks, of floating-point or whole numbers of any shape."""

    def least(self, numbers: Tensor) -> Tensor:
        """Return the least over all ranks of each number."""

    def gather(self, numbers: Tensor) -> list[Tensor]:
        """Return the numbers [N] of each rank; N may differ from one to the next."""

    def average(self, gradients: Sequence[Tensor]) -> None:
        """Replace each gradient by its mean over all ranks, in one exchange."""


class Alone:
    """The only learner: nothing is exchanged."""

    rank = 0
    size = 1

    def mean(self, numbers: Tensor) -> Tensor:
        """Return the numbers."""
        return numbers

    def least(self, numbers: Tensor) -> Tensor:
        """Return the numbers."""
        return numbers

    def gather(self, numbers: Tensor) -> list[Tensor]:
        """Return the numbers alone."""
        return [numbers]

    def average(self, gradients: Sequence[Tensor]) -> None:
        """Do nothing."""


ALONE = Alone()


class Joined:
    """The numbers [N] of all ranks one behind the other, and where this rank's own are."""

    def __init__(self, ranks: Ranks, numbers: Tensor) -> None:
        parts = ranks.gather(numbers)
        self.all = torch.cat(parts)  # [all N]
        self._first = sum(map(len, parts[: ranks.rank]))
        self._count = len(numbers)

    def own(self, numbers: Tensor) -> Tensor:
        """Return this rank's part [N] of what was computed of all [all N]."""
        return numbers[self._first : self._first + self._count]

"""What an update needs of its batch before its own pass, begun while the update before it is made.

    ahead.expect(following)  # before an update, where the batch of the next one is known
    begun = ahead.take(batch)
    ahead.go_on()  # when all is drawn for this update, so that draws keep their order

The main thread then seldom waits for the target network, which sees the next batch in a second thread (`beside`).
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from rainbow_iqn_apex.memory.batch import Batch, Transitions


class Begun(NamedTuple):
    """Holds what an update has of its batch."""

    transitions: Transitions
    target: Callable[[], Tensor]  # waits for what the targets need of the target network


class Ahead:
    """Begins with the next batch while an update is made; `begin` does it."""

    def __init__(self, begin: Callable[[Batch], Begun]) -> None:
        self._begin = begin
        self._expected: Batch | None = None
        self._begun: tuple[Batch, Begun] | None = None

    def expect(self, batch: Batch) -> None:
        """Let `go_on` begin with this batch."""
        self._expected = batch

    def take(self, batch: Batch) -> Begun:
        """Return what was begun with this very batch, or begin now."""
        before, self._begun = self._begun, None
        return before[1] if before and before[0] is batch else self._begin(batch)

    def go_on(self) -> None:
        """Begin with the expected batch, if there is one."""
        expected, self._expected = self._expected, None
        if expected is not None:
            self._begun = expected, self._begin(expected)

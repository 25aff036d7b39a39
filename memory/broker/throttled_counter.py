"""Counts what is left out, and prints a line: at once for the first, then at most one line every ten seconds."""

import time
from collections.abc import Callable

_INTERVAL_S = 10.0


class ThrottledCounter:
    """Prints a line now and then; `line` makes the text from the number of new ones and the number of all."""

    def __init__(self, line: Callable[[int, int], str]) -> None:
        self.count = 0
        self._line = line
        self._told = 0
        self._next = 0.0

    def more(self, number: int = 1) -> None:
        """Count some more."""
        self.count += number
        self.report()

    def report(self, *, now: bool = False) -> None:
        """Print what is new, but not too often unless `now`."""
        new = self.count - self._told
        if new and (now or time.monotonic() >= self._next):
            print(self._line(new, self.count), flush=True)
            self._told = self.count
            self._next = time.monotonic() + _INTERVAL_S

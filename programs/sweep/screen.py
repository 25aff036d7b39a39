"""Show a sweep: a table on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple

from rich.table import Table

from rainbow_iqn_apex.common.text import counted
from rainbow_iqn_apex.memory.broker.leases import printable
from rainbow_iqn_apex.monitoring.terminal.screen import Screen, is_possible

_EVERY_S = 60.0  # between lines about how far all are
_ROOM = 8  # rows of the terminal for other lines


class Row(NamedTuple):
    """A run at a moment."""

    name: str
    state: str  # waiting, running, finished, failed or elsewhere
    steps: int
    most: int
    words: str


class View:
    """Shows a sweep to its user."""

    def __init__(self, screen: Screen | None) -> None:
        self._screen = screen
        self._due = time.monotonic() + _EVERY_S

    def say(self, line: str) -> None:
        """Print a line."""
        if self._screen:
            self._screen.above([line])
        else:
            print(printable(line), flush=True)

    def show(self, rows: Sequence[Row]) -> None:
        """Draw all runs, or print now and then how far they are."""
        if self._screen:
            self._screen.draw(picture(rows, self._screen.console.height))
        elif time.monotonic() >= self._due:
            self._due = time.monotonic() + _EVERY_S
            self.say(summary(rows))
            for row in rows:
                if row.state == "running":
                    self.say(f"{row.name}: T = {row.steps} / {row.most}; {row.words}")


@contextmanager
def opened() -> Iterator[View]:
    """Yield the view, for the standard output."""
    if not is_possible():
        yield View(None)
        return
    with closing(Screen()) as screen:
        yield View(screen)


def summary(rows: Sequence[Row]) -> str:
    """Return how many runs are in which state."""
    states = [row.state for row in rows]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    return f"{counted(len(rows), 'run')}: {counts}"


def picture(rows: Sequence[Row], height: int) -> Table:
    """Return a table of the runs; those that run or have failed come first where not all have room."""
    room = max(1, height - _ROOM)
    order = ("running", "failed", "elsewhere", "waiting", "finished")
    shown = set(sorted(rows, key=lambda row: order.index(row.state))[:room])
    table = Table(title=summary(rows), title_justify="left", box=None, expand=True)
    table.add_column("run", no_wrap=True, ratio=3)
    table.add_column("state", no_wrap=True)
    table.add_column("T", justify="right", no_wrap=True)
    table.add_column("last words", no_wrap=True, ratio=4)
    for row in rows:
        if row in shown:
            steps = f"{min(1.0, row.steps / row.most):.0%} of {row.most:,}"
            table.add_row(printable(row.name), row.state, steps, printable(row.words))
    if left := len(rows) - len(shown):
        table.add_row(f"and {left} more", "", "", "")
    return table

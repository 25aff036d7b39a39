"""Keeps a picture at the bottom of a terminal; all that is printed meanwhile goes above it, in whole lines.

The cursor stays visible, on an empty line below the picture: a process that is killed leaves a usable terminal.
"""

import io
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from rainbow_iqn_apex.memory.broker.leases import printable
from rainbow_iqn_apex.monitoring.report import Report


def is_possible() -> bool:
    """Return whether the standard output is a terminal that can draw."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


class Screen:
    """Draws on the standard output, which must be a terminal; any thread may call any method."""

    def __init__(self) -> None:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # a terminal without Unicode gets question marks
        self.console = Console(file=sys.stdout, force_terminal=True, force_interactive=True, highlight=False)
        self._lock = threading.RLock()  # of whole pictures and lines
        self._live: Live | None = None
        self._closed = False

    def draw(self, picture: RenderableType) -> None:
        """Replace the picture; do nothing after `close`, or if the terminal is gone."""
        with self._lock, suppress(OSError):
            if self._closed:
                return
            if self._live is None:
                self._live = Live(
                    console=self.console,
                    auto_refresh=False,
                    redirect_stdout=False,
                    redirect_stderr=False,
                    transient=True,
                )
                self._live.start()
                self.console.show_cursor(True)
            self._live.update(Group(picture, Text("")), refresh=True)

    def above(self, lines: Iterable[str]) -> None:
        """Print lines above the picture; raises OSError if the terminal is gone."""
        with self._lock:
            for line in lines:
                self.console.print(Text(printable(line.expandtabs())), soft_wrap=True)

    def close(self) -> None:
        """Remove the picture; do nothing if the terminal is gone."""
        with self._lock, suppress(OSError):
            self._closed = True
            if self._live:
                self._live.update(Text(""), refresh=True)
                self._live.stop()
                self._live = None


class _Lines(io.TextIOBase):
    """Takes the place of a standard stream: holds what a thread prints until its line is whole."""

    def __init__(self, screen: Screen, stream: TextIO) -> None:
        self._screen = screen
        self._stream = stream
        self._begun = threading.local()

    def write(self, text: str) -> int:
        *lines, self._begun.line = (getattr(self._begun, "line", "") + text).split("\n")
        if lines:
            self._screen.above(lines)
        return len(text)

    def fileno(self) -> int:
        return self._stream.fileno()

    def isatty(self) -> bool:
        return True


@contextmanager
def drawn(picture: Callable[[Report], RenderableType]) -> Iterator[Callable[[Report], None]]:
    """Yield an observer of a process's reports, which draws them on a terminal, and does nothing elsewhere."""
    if not is_possible():
        yield lambda _: None
        return
    screen = Screen()
    out = sys.stdout
    errors = sys.stderr
    sys.stdout = _Lines(screen, out)
    if errors.isatty():
        sys.stderr = _Lines(screen, errors)
    try:
        yield lambda report: screen.draw(picture(report))
    finally:
        screen.close()  # first: no line goes past the screen before the picture is gone
        sys.stdout = out
        sys.stderr = errors

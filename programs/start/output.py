"""Write lines to terminals and windows; a training goes on when they are not read any more."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import IO

from rainbow_iqn_apex.monitoring.terminal.screen import Screen
from rainbow_iqn_apex.options import command_line

_NAME = command_line.name_of("start_learning_atari.sh").removesuffix(".sh")
_TERMINAL, _ERRORS = 1, 2  # descriptors
_LAST_LINES_S = 10.0  # longer than any reader needs that has not been stopped by Ctrl-S


def say(text: str) -> None:
    """Print a line of the start script itself."""
    _write(_TERMINAL, f"{_NAME}: {text}\n".encode(errors="backslashreplace"))


def complain(text: str) -> None:
    """Print a line about what went wrong."""
    _write(_ERRORS, f"{_NAME}: {text}\n".encode(errors="backslashreplace"))


_screens: list[Screen] = []  # the one that is drawn on this terminal, or none


@contextmanager
def above(screen: Screen) -> Iterator[None]:
    """Print all lines above a screen within the block; errors that go elsewhere still go there."""
    _screens.append(screen)
    try:
        yield
    finally:
        _screens.clear()


def _write(descriptor: int, data: bytes) -> None:
    """Write a line in one go where that is possible, as threads write to the terminal at the same time."""
    with suppress(OSError):
        if _screens and (descriptor == _TERMINAL or (descriptor == _ERRORS and os.isatty(_ERRORS))):
            _screens[0].above([data.decode(errors="replace").removesuffix("\n")])
            return
        while data:
            data = data[os.write(descriptor, data) :]


class Output:
    """Copies the lines of a process to a window (the descriptor of its pipe), or to this terminal with a prefix."""

    def __init__(self, source: IO[bytes], name: str, window: int | None, takes: Callable[[bytes], bool]) -> None:
        """`takes` is as in `Process`."""
        self._source = source
        self._window = window
        self._takes = takes
        self._prefix = f"[{name}] ".encode() if window is None else b""
        self.last_line = b""  # which has something in it
        self._thread = threading.Thread(target=self._copy, name=f"output of {name}", daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        descriptor = _TERMINAL if self._window is None else self._window
        for line in self._source:
            self.last_line = line.strip() or self.last_line
            if not self._takes(line):
                _write(descriptor, self._prefix + line.removesuffix(b"\n") + b"\n")

    def close(self, last_words: bytes) -> None:
        """Copy what is left of a process that has ended; only a window gets the last words."""
        self._thread.join(_LAST_LINES_S)
        if self._thread.is_alive():
            return  # the descriptors stay open, as the thread uses them
        self._source.close()
        if self._window is not None:
            _write(self._window, last_words)
            os.close(self._window)

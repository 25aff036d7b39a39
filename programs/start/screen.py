"""The start script's terminal: its own lines and those of its processes, above a picture of the whole run."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from rainbow_iqn_apex.common.errors import RunError, Stopped, UserError
from rainbow_iqn_apex.common.text import name_error
from rainbow_iqn_apex.memory.broker.access import Server
from rainbow_iqn_apex.memory.broker.connection import BrokerError
from rainbow_iqn_apex.memory.broker.topology import open_servers
from rainbow_iqn_apex.monitoring.overview import OverviewReader
from rainbow_iqn_apex.monitoring.terminal.pictures import run_picture
from rainbow_iqn_apex.monitoring.terminal.screen import Screen, is_possible
from rainbow_iqn_apex.options import command_line
from rainbow_iqn_apex.programs.supervision import write_all

_NAME = command_line.name_of("start_learning_atari.sh").removesuffix(".sh")
_TERMINAL = 1  # descriptors
_ERRORS = 2
_INTERVAL_S = 1.0
_ENDS_S = 2.0
_screens: list[Screen] = []  # the one that is drawn on this terminal, or none


def say(text: str) -> None:
    """Print a line of the start script itself."""
    print_line(f"{_NAME}: {text}\n".encode(errors="backslashreplace"))


def complain(text: str) -> None:
    """Print a line about what went wrong."""
    print_line(f"{_NAME}: {text}\n".encode(errors="backslashreplace"), _ERRORS)


def print_line(line: bytes, descriptor: int = _TERMINAL) -> None:
    """Print a line, above the picture if there is one; a training goes on when lines are not read any more."""
    with suppress(OSError):
        if _screens and (descriptor == _TERMINAL or (descriptor == _ERRORS and os.isatty(_ERRORS))):
            _screens[0].above([line.decode(errors="replace").removesuffix("\n")])
        else:
            write_all(descriptor, line)


@contextmanager
def shown(server: Server, run: str) -> Iterator[None]:
    """Show a run within the block, if the standard output is a terminal."""
    if not is_possible():
        yield
        return
    left = threading.Event()
    screen = Screen()
    _screens.append(screen)
    thread = threading.Thread(target=_draw, args=(screen, server, run, left), name="screen", daemon=True)
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join(_ENDS_S)  # not for ever, as Redis may not answer
        screen.close()
        _screens.clear()  # last: no line goes past the screen before the picture is gone


def _draw(screen: Screen, server: Server, run: str, left: threading.Event) -> None:
    """Draw the run once a second; the picture stays as it is while Redis does not answer, or after a fault in here."""
    try:
        client = open_servers(server, left)
    except (UserError, Stopped):
        return  # learner and actors print why
    began = time.time()
    printed = set[str]()
    with closing(OverviewReader(client.aside(), run)) as reader:
        while not left.wait(_INTERVAL_S):
            try:
                overview = reader.read()
                if overview and (overview.record.written or 0) >= int(began):  # not as an earlier start has left it
                    screen.draw(run_picture(overview, screen.console.height))
            except (BrokerError, RunError):
                continue
            except Exception as error:  # noqa: BLE001 - a fault in here may cost the picture, and no run
                if (fault := name_error(error)) not in printed:
                    printed.add(fault)
                    complain(f"the run cannot be drawn ({fault})")

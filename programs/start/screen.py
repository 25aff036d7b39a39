"""Draws the whole run at the bottom of the start script's terminal; all lines go above it."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from rainbow_iqn_apex.common.errors import RunError, Stopped, UserError
from rainbow_iqn_apex.common.text import name_error
from rainbow_iqn_apex.memory.broker.access import Server
from rainbow_iqn_apex.memory.broker.connection import BrokerError
from rainbow_iqn_apex.memory.broker.topology import open_servers
from rainbow_iqn_apex.monitoring.overview import OverviewReader
from rainbow_iqn_apex.monitoring.terminal.pictures import run_picture
from rainbow_iqn_apex.monitoring.terminal.screen import Screen, is_possible
from rainbow_iqn_apex.programs.start import output

_INTERVAL_S = 1.0
_ENDS_S = 2.0


@contextmanager
def shown(server: Server, run: str) -> Iterator[None]:
    """Show a run within the block, if the standard output is a terminal."""
    if not is_possible():
        yield
        return
    left, screen = threading.Event(), Screen()
    with output.above(screen), closing(screen):  # no line goes past the screen before the picture is gone
        thread = threading.Thread(target=_draw, args=(screen, server, run, left), name="screen", daemon=True)
        thread.start()
        try:
            yield
        finally:
            left.set()
            thread.join(_ENDS_S)  # not for ever, as Redis may not answer


def _draw(screen: Screen, server: Server, run: str, left: threading.Event) -> None:
    """Draw the run once a second; the picture stays as it is while Redis does not answer, or after a fault in here."""
    try:
        client = open_servers(server, left)
    except (UserError, Stopped):
        return  # learner and actors print why
    began, printed = time.time(), set[str]()
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
                    output.complain(f"the run cannot be drawn ({fault})")

"""Sinks around other sinks: what fails ends no run, and what is slow keeps no process waiting."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Full, Queue

from rainbow_iqn_apex.common.text import name_error
from rainbow_iqn_apex.monitoring.sinks.sink import Moment, Sink

_MOST_LINES = 20  # of a sink: errors that name a request, or an object's address, are never the same
_MOST_WAITING = 6  # moments, for a slow sink
_END_S = 25.0  # for a slow sink to write what is left; the start script gives the learner 60 s


class Guarded:
    """Prints a line for the first failure of each kind, and goes on."""

    def __init__(self, sink: Sink) -> None:
        self.is_live = sink.is_live
        self._sink = sink
        self._printed: set[str] = set()

    def take(self, moment: Moment) -> None:
        """Write the metrics of a moment, if that is possible."""
        self._try(lambda: self._sink.take(moment))

    def close(self) -> None:
        """Write what is left, if that is possible."""
        self._try(self._sink.close)

    def report_once(self, failure: str) -> None:
        """Print a line, if it is new."""
        if failure not in self._printed and len(self._printed) < _MOST_LINES:
            self._printed.add(failure)
            print(f"Metrics are not written ({type(self._sink).__name__}: {failure})", flush=True)
            if len(self._printed) == _MOST_LINES:
                print(f"What else fails in {type(self._sink).__name__} is not told", flush=True)

    def _try(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            self.report_once(str(error))
        except Exception as error:  # noqa: BLE001 - other people's packages raise what they like
            self.report_once(name_error(error))


class InThread:
    """Lets a sink that may wait for a network work in a thread of its own."""

    def __init__(self, sink: Sink) -> None:
        self.is_live = sink.is_live
        self._sink = Guarded(sink)
        self._moments: Queue[Moment | None] = Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._keep, name=type(sink).__name__, daemon=True)
        self._thread.start()

    def take(self, moment: Moment) -> None:
        """Hand over a moment; leave it out while the sink has too many."""
        try:
            self._moments.put_nowait(moment)
        except Full:
            self._sink.report_once("too slow, moments are left out")

    def close(self) -> None:
        """Wait until all is written, but not for ever."""
        ends = time.monotonic() + _END_S
        with suppress(Full):
            self._moments.put(None, timeout=_END_S)
        self._thread.join(max(0.0, ends - time.monotonic()))
        if self._thread.is_alive():
            self._sink.report_once(f"too slow, did not end within {_END_S:.0f} s")

    def _keep(self) -> None:
        while moment := self._moments.get():
            self._sink.take(moment)
        self._sink.close()

"""Makes moments of the learner's reports, and hands them to the sinks."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from memory.broker.connection import BrokerError
from memory.errors import RunError
from monitoring.overview import OverviewReader
from monitoring.report import Report
from monitoring.sinks.sink import Moment, Sink

_INTERVAL_S = 10.0
_KEPT = 2000  # moments of a run whose intervals are not longer yet: a week's history has some 9 000


class Feeder:
    """Observes the learner's reports, one a second.

    The longer a run, the longer the time between two moments. `reader` finds the reports of the other processes. All
    calls but `close` belong to the reporter's thread.
    """

    def __init__(self, sinks: Sequence[Sink], reader: OverviewReader) -> None:
        self._sinks = sinks
        self._reader = reader
        self._next = 0.0
        self._newest = 0.0  # event that the sinks have
        self._told: set[str] = set()  # failures

    def observe(self, report: Report) -> None:
        """Take a report; hand a moment to the sinks if one is due, and when the learner leaves."""
        if report.written < self._next and not report.ended:
            return
        self._next = report.written + max(_INTERVAL_S, (report.written - report.began) / _KEPT)
        events = tuple(event for event in report.events if event.at > self._newest)
        moment = Moment(report.written, _step(report), report.values, report.histograms, events, self._others())
        for sink in self._sinks:
            self._try(sink, lambda sink=sink: sink.take(moment))  # type: ignore[misc]
        self._newest = max((event.at for event in events), default=self._newest)

    def close(self) -> None:
        """Close sinks and reader."""
        self._reader.close()
        for sink in self._sinks:
            self._try(sink, sink.close)

    def _others(self) -> tuple[Report, ...]:
        """Return the newest reports of actors and evaluation actors; none if Redis does not answer."""
        with suppress(BrokerError, RunError):
            if overview := self._reader.read():
                return tuple(process.report for process in overview.processes[1:] if process.report)
        return ()

    def _try(self, sink: Sink, write: Callable[[], None]) -> None:
        """Write to a sink; print a line for the first failure of each kind."""
        try:
            write()
        except OSError as error:
            failure = f"{type(sink).__name__}: {error}"
            if failure not in self._told:
                self._told.add(failure)
                print(f"Metrics are not written ({failure})", flush=True)


def _step(report: Report) -> int:
    return int(report.values.get("time/total_timesteps", 0))

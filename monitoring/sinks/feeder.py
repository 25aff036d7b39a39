"""Makes moments of the learner's reports, and hands them to the sinks."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.memory.broker.connection import BrokerError
from rainbow_iqn_apex.monitoring.film import Film, FilmSlot
from rainbow_iqn_apex.monitoring.overview import OverviewReader
from rainbow_iqn_apex.monitoring.report import Event, Report
from rainbow_iqn_apex.monitoring.sinks.films import FilmReader
from rainbow_iqn_apex.monitoring.sinks.guarded import Guarded
from rainbow_iqn_apex.monitoring.sinks.sink import Moment, Sink
from rainbow_iqn_apex.monitoring.sinks.steady_clock import SteadyClock

_INTERVAL_S = 10.0
_MOST_EVENTS = 1000
_KEPT = 2000  # moments of a run whose intervals are not longer yet: a week's history has some 9 000
_RUNNING = ("working", "waiting", "lockstep")


class Feeder:
    """Observes the learner's reports, one a second.

    The longer a run, the longer the time between two moments, but for live sinks. For these, `reader` finds the reports
    of the other processes. `films` finds those of evaluation episodes. All calls but `close` belong to the reporter's
    thread.
    """

    def __init__(self, sinks: Sequence[Sink], reader: OverviewReader, films: FilmReader | None = None) -> None:
        self._sinks = [Guarded(sink) for sink in sinks]
        self._live = [sink for sink in self._sinks if sink.is_live]
        self._reader = reader
        self._films = films
        self._clock = SteadyClock()
        self._next = self._next_live = -math.inf
        self._seen: frozenset[Event] = frozenset()  # of the newest report
        self._events: deque[Event] = deque(maxlen=_MOST_EVENTS)  # that the sinks do not have yet

    def observe(self, report: Report) -> None:
        """Take a report; hand a moment to the sinks if one is due, and when the learner leaves."""
        now = self._clock.at(report.written)
        self._events += (event for event in report.events if event not in self._seen)
        self._seen = frozenset(report.events)
        is_due = report.ended or now >= self._next
        if not is_due and not (self._live and now >= self._next_live):
            return
        films = self._films.read(now, last=report.ended) if is_due and self._films else {}
        moment = self._moment(report, films)
        for sink in self._sinks if is_due else self._live:
            sink.take(moment)
        self._next_live = now + _INTERVAL_S
        if is_due:
            self._next = now + max(_INTERVAL_S, (now - report.began) / _KEPT)
            self._events.clear()

    def close(self) -> None:
        """Close the reader, and all sinks at the same time: each may take as long as it may have."""
        self._reader.close()
        if self._films:
            self._films.close()
        with ThreadPoolExecutor(max(1, len(self._sinks))) as pool:
            list(pool.map(Guarded.close, self._sinks))

    def _moment(self, report: Report, films: Mapping[FilmSlot, Film]) -> Moment:
        values = {name: value for name, value in report.values.items() if math.isfinite(value)}
        step = int(values.get("time/total_timesteps", 0))
        others = self._others() if self._live else ()  # for which only these ask
        return Moment(report.written, step, values, report.histograms, tuple(self._events), others, films)

    def _others(self) -> tuple[Report, ...]:
        """Return the newest reports of the processes beside the learner that run; none if Redis does not answer."""
        with suppress(BrokerError, RunError):
            if overview := self._reader.read():
                running = (process for process in overview.processes[1:] if process.state in _RUNNING)
                return tuple(process.report for process in running if process.report)
        return ()

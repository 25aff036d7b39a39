"""What a sink is, and what feeds the sinks of a run, in the learner's reporter thread:

    sink.take(moment)     # every ten seconds, less often in a long run; the first call opens files and connections
    sink.close()          # once, in the end

What a sink raises is printed in one line: the run goes on, and the sink is tried again with the next moment. A sink
that may wait for a network is put into a thread of its own, by `InThread`.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Full, Queue
from typing import Any, NamedTuple, Protocol

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.common.text import name_error
from rainbow_iqn_apex.memory.broker.connection import BrokerError
from rainbow_iqn_apex.memory.broker.reports import FilmStore
from rainbow_iqn_apex.monitoring.overview import OverviewReader
from rainbow_iqn_apex.monitoring.report import Event, Report
from rainbow_iqn_apex.monitoring.video import (
    FILM_BYTES,
    FILM_SLOTS,
    HEADER_BYTES,
    Film,
    FilmError,
    FilmInfo,
    FilmSlot,
    decode_film,
    decode_info,
)

TAGS: dict[FilmSlot, str] = {"best": "evaluation/best_episode", "newest": "evaluation/newest_episode"}
_MOST_LINES = 20  # of a sink: errors that name a request, or an object's address, are never the same
_MOST_WAITING = 6  # moments, for a slow sink
_END_S = 25.0  # for a slow sink to write what is left; the start script gives the learner 60 s
_INTERVAL_S = 10.0
_MOST_EVENTS = 1000
_MOMENTS = 2000  # of a run whose intervals are not longer yet: a week's history has some 9 000
_NEWEST_S = 60.0  # between two films of the newest episode, however many evaluation actors there are
_KEPT_FILMS = 100  # of the newest episode, per e-fold of a run's length: a week's run keeps some 600
_RUNNING = ("working", "waiting", "lockstep")


class RunInfo(NamedTuple):
    """Holds what a sink may need to know of a run."""

    name: str
    run_id: str  # the same after each resumption
    folder: Path  # of the results
    game: str  # as the names of files have it
    settings: dict[str, Any]


@dataclass(frozen=True)
class Moment:
    """The metrics of a run at a moment."""

    at: float  # seconds since 1970
    step: int  # agent steps that were played
    values: dict[str, float]  # the learner's, by the names of monitoring.metrics
    histograms: dict[str, list[float]]
    events: tuple[Event, ...]  # of the learner, since the last moment
    others: tuple[Report, ...] = ()  # the newest reports of the others that run, if a sink is live
    films: Mapping[FilmSlot, Film] = field(default_factory=dict)  # of evaluation episodes, since the last moment
    kept_films: Mapping[FilmSlot, Film] = field(default_factory=dict)  # those of them for a sink that keeps all


class Sink(Protocol):
    """Takes a run's metrics."""

    is_live: bool  # shows the newest moment alone: it gets one every ten seconds in a long run, too

    def take(self, moment: Moment) -> None:
        """Write the metrics of a moment."""

    def close(self) -> None:
        """Write what is left."""


class Guarded:
    """A sink whose failures end no run: prints a line for the first of each kind."""

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
    """A sink that may wait for a network, in a thread of its own."""

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


class SteadyClock:
    """Continues from its last time where another clock was set back; a jump forward stays one."""

    def __init__(self) -> None:
        self._shift = 0.0
        self._latest = -math.inf

    def at(self, time: float) -> float:
        """Return the steady time [s] at which the clock shows a time [s]; call it in the order of events."""
        self._shift += max(0.0, self._latest - time - self._shift)
        self._latest = time + self._shift
        return self._latest


class FilmReader:
    """Reads the films that evaluation actors leave in Redis, each once.

    `shown` are the films that the run has shown before this process began.
    """

    def __init__(self, store: FilmStore, shown: dict[FilmSlot, FilmInfo]) -> None:
        self._store = store
        self._seen = shown.copy()  # good or bad
        self._best = shown["best"].score if "best" in shown else -math.inf
        self._next_newest = -math.inf
        self._has_printed = False

    def read(self, now: float, *, last: bool = False) -> dict[FilmSlot, Film]:
        """Return the films that are new; none if Redis does not answer, and `last` a newest one in any case.

        `now` is a time [s] that only goes forward.
        """
        slots = tuple(slot for slot in FILM_SLOTS if slot == "best" or last or now >= self._next_newest)
        found: dict[FilmSlot, Film] = {}
        with suppress(BrokerError, RunError):
            headers = self._store.read(slots, HEADER_BYTES)
            for slot in slots:
                try:
                    if slot in headers and (film := self._film(slot, decode_info(headers[slot]))):
                        found[slot] = film
                except FilmError as error:
                    if not self._has_printed:  # one line in the life of a process
                        print(f"A film of an evaluation episode is not shown: Redis holds {error}", flush=True)
                    self._has_printed = True
        if "newest" in found:
            self._next_newest = now + _NEWEST_S
        if "best" in found:
            self._best = found["best"].info.score
        return found

    def _film(self, slot: FilmSlot, info: FilmInfo) -> Film | None:
        """Return the film of a header, if it is new; raises FilmError, BrokerError."""
        if not self._is_new(slot, info):
            return None
        self._seen[slot] = info  # also if it is damaged: it is not read again and again
        film = decode_film(self._store.read((slot,), FILM_BYTES + 1).get(slot, b""))
        if film.info != info and not self._is_new(slot, film.info):  # it was replaced just now
            return None
        self._seen[slot] = film.info
        return film

    def _is_new(self, slot: FilmSlot, info: FilmInfo) -> bool:
        """Return whether a film was not shown; the best one is worse than before where Redis has lost a better one."""
        return info != self._seen.get(slot) and (slot != "best" or info.score > self._best)

    def close(self) -> None:
        """Close the connection."""
        self._store.close()


class KeptFilms:
    """Choice of films for sinks that keep all: every best one, but the longer a run, the fewer of the newest."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._next = -math.inf

    def choose(self, films: Mapping[FilmSlot, Film], now: float) -> Mapping[FilmSlot, Film]:
        """Return the films that such a sink gets; `now` is a time [s] that only goes forward."""
        self._began = now if self._began is None else self._began
        if "newest" not in films:
            return films
        if now < self._next:
            return {slot: film for slot, film in films.items() if slot != "newest"}
        self._next = now + max(_NEWEST_S, (now - self._began) / _KEPT_FILMS)
        return films


class Feeder:
    """Makes moments of the learner's reports, one a second, and hands them to the sinks.

    The longer a run, the longer the time between two moments, but for live sinks. For these, `reader` finds the reports
    of the other processes. `films` finds those of evaluation episodes. All calls but `close` belong to the reporter's
    thread.
    """

    def __init__(self, sinks: Sequence[Sink], reader: OverviewReader, films: FilmReader | None = None) -> None:
        self._sinks = [Guarded(sink) for sink in sinks]
        self._live = [sink for sink in self._sinks if sink.is_live]
        self._reader = reader
        self._films = films
        self._kept_films = KeptFilms()
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
        values = {name: value for name, value in report.values.items() if math.isfinite(value)}
        moment = Moment(
            at=report.written,
            step=int(values.get("time/total_timesteps", 0)),
            values=values,
            histograms=report.histograms,
            events=tuple(self._events),
            others=self._others() if self._live else (),  # for which only these ask
            films=films,
            kept_films=self._kept_films.choose(films, now),
        )
        for sink in self._sinks if is_due else self._live:
            sink.take(moment)
        self._next_live = now + _INTERVAL_S
        if is_due:
            self._next = now + max(_INTERVAL_S, (now - report.began) / _MOMENTS)
            self._events.clear()

    def _others(self) -> tuple[Report, ...]:
        """Return the newest reports of the processes beside the learner that run; none if Redis does not answer."""
        with suppress(BrokerError, RunError):
            if overview := self._reader.read():
                running = (process for process in overview.processes[1:] if process.state in _RUNNING)
                return tuple(process.report for process in running if process.report)
        return ()

    def close(self) -> None:
        """Close the reader, and all sinks at the same time: each may take as long as it may have."""
        self._reader.close()
        if self._films:
            self._films.close()
        with ThreadPoolExecutor(max(1, len(self._sinks))) as pool:
            list(pool.map(Guarded.close, self._sinks))

"""A process's report of itself: what it is, what it waits for, its metrics, and the latest events of its life.

Each process writes its report into Redis every second, from a thread of its own:

    with Reporter(store, "actor", 3, gather, events):
        ...                                   # the thread asks `gather` for the metrics
        events.note("resumed at T = 5000")    # and shows the newest events

Reports travel as JSON. Whoever may write to Redis may have written one, so `decode` checks names, sizes and ranges.
"""

import json
import math
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta

from rainbow_iqn_apex.common import waiting
from rainbow_iqn_apex.common.schema import MOST, Moment, Number, read_record
from rainbow_iqn_apex.common.text import name_error
from rainbow_iqn_apex.memory.broker.connection import BrokerError, ResponseError
from rainbow_iqn_apex.memory.broker.leases import printable, this_host
from rainbow_iqn_apex.memory.broker.reports import ReportStore, ViewsRefusedError
from rainbow_iqn_apex.memory.broker.server_errors import trouble_of
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS
from rainbow_iqn_apex.monitoring.metrics import METRICS, PRIORITY_BOUNDS, check_names, known
from rainbow_iqn_apex.monitoring.view import Viewer
from rainbow_iqn_apex.monitoring.view import encode as encode_view

INTERVAL_S = 1.0
MAX_BYTES = 1 << 16  # of a report
MAX_EVENTS = 20
_MAX_TEXT = 200  # characters
_Text = Annotated[str, Meta(max_length=_MAX_TEXT)]
_Bin = Annotated[float, Meta(ge=0, le=MOST)]
_PAGE = os.sysconf("SC_PAGE_SIZE")  # bytes

Role = Literal["learner", "actor", "evaluation actor", "inference server"]


def title_of(role: str, number: int) -> str:
    """Return a process's name, for people."""
    return role if role == "learner" else f"{role} {number}"


class ReportError(ValueError):
    """Bytes that no process of this project can have written as its report."""


class Event(NamedTuple):
    """Something that happened to a process, such as a checkpoint."""

    at: Moment  # seconds since 1970
    text: _Text
    is_alarm: bool = False  # whether a person should look at it


class EventLog:
    """Holds a process's newest events."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)

    def note(self, text: str, *, is_alarm: bool = False) -> None:
        """Add an event of this moment; an alarm is something that a person should look at."""
        self._events.append(Event(time.time(), text, is_alarm))

    def withdraw(self, text: str) -> None:
        """Take back what is not so any more."""
        kept = [event for event in self._events if event.text != text]
        self._events = deque(kept, maxlen=MAX_EVENTS)

    def newest(self) -> tuple[Event, ...]:
        """Return the events, the oldest first."""
        return tuple(self._events)


@dataclass(frozen=True)
class Report:
    """Holds what one process has written of itself."""

    role: Role
    number: Annotated[int, Meta(ge=0, le=MAX_ACTORS)]  # of the actor; 0 of the learner
    host: _Text
    process: Annotated[int, Meta(ge=0, le=10**10)]
    began: Moment  # seconds since 1970, by the clock of the process's machine, as all times here
    written: Moment
    ended: bool = False  # the process has left in good order
    waits_for: _Text = ""  # empty: it waits for nothing
    values: dict[str, Number] = field(default_factory=dict)  # by the names of monitoring.metrics
    histograms: dict[str, list[_Bin]] = field(default_factory=dict)  # counts of the bins, by the names of METRICS
    events: Annotated[tuple[Event, ...], Meta(max_length=MAX_EVENTS)] = ()

    def value(self, name: str) -> float | None:
        """Return a metric, None if the process has not reported it; raises ValueError for an unknown name."""
        check_names({name})
        return self.values.get(name)


def encode(report: Report) -> bytes:
    """Return a report's bytes; raises ValueError for a metric of another name than `monitoring.metrics` has."""
    check_names(report.values.keys() | report.histograms.keys())
    finite = {name: value for name, value in report.values.items() if math.isfinite(value) and abs(value) < MOST}
    events = [event._replace(text=event.text[:_MAX_TEXT]) for event in report.events[-MAX_EVENTS:]]
    content = asdict(report) | {"values": finite, "events": events, "waits_for": report.waits_for[:_MAX_TEXT]}
    return json.dumps(content, allow_nan=False, ensure_ascii=False).encode(errors="replace")


def decode(data: bytes) -> Report:
    """Parse a report; raises ReportError for anything that `encode` cannot have made."""
    try:
        report = read_record(data, Report, MAX_BYTES)
    except ValueError as error:
        raise ReportError(f"a damaged report ({error})") from error
    # A newer release may report metrics that this one does not know.
    histograms = {name: bins for name, bins in report.histograms.items() if name in METRICS}
    if any(len(bins) != len(PRIORITY_BOUNDS) + 1 for bins in histograms.values()):
        raise ReportError("a report with a histogram of other bins")
    return replace(
        report,
        host=printable(report.host),
        waits_for=printable(report.waits_for),
        values={name: report.values[name] for name in known(report.values)},
        histograms=histograms,
        events=tuple(event._replace(text=printable(event.text)) for event in report.events),
    )


class ProcessUse:
    """Measures memory and processor time of this process, the latter since the last measurement."""

    def __init__(self) -> None:
        self._last = (time.monotonic(), time.process_time())

    def measure(self) -> dict[str, float]:
        """Return the metrics of this moment."""
        now = (time.monotonic(), time.process_time())
        elapsed, used = (new - old for new, old in zip(now, self._last, strict=True))
        self._last = now
        values = {"process/memory": _resident_bytes(), "process/cpu": used / elapsed if elapsed else 0.0}
        cuda: Any = sys.modules.get("torch.cuda")  # not imported for this, and perhaps just being imported
        if getattr(cuda, "is_initialized", bool)():
            values["process/gpu_memory"] = float(sum(map(cuda.memory_reserved, range(cuda.device_count()))))
        return values


def _resident_bytes() -> float:
    try:
        return float(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except OSError:  # no Linux
        return 0.0


@dataclass(frozen=True)
class Reading:
    """Metrics of a moment, by the names of `monitoring.metrics`."""

    values: dict[str, float]
    histograms: dict[str, list[float]] = field(default_factory=dict)


class Reporter:
    """Reports for one process; use as a context manager.

    `gather` is called in the reporter's thread while the process works: it may only read. `observers` get each report
    that was made, also those that Redis did not take. An actor's `viewer` is asked for a view a second while somebody
    watches. Nothing here ends a run or keeps it waiting: a report that cannot be written is left out, and one line is
    printed.
    """

    def __init__(
        self,
        store: ReportStore,
        role: Role,
        number: int,
        gather: Callable[[], Reading],
        events: EventLog,
        *observers: Callable[[Report], None],
        viewer: Viewer | None = None,
    ) -> None:
        self._store = store
        self._actor = None if role == "learner" else number
        self._gather = gather
        self._observers = observers
        self._viewer = viewer
        self._use = ProcessUse()
        self._events = events
        now = time.time()
        self._report = Report(role, number, this_host(), os.getpid(), now, now)
        self._restarts: float | None = None  # unknown until the predecessor's report was looked for
        self._refused = False  # whether a line was printed about reports that Redis does not take
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="reports", daemon=True)

    def __enter__(self) -> "Reporter":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join()
        self._store.close()

    def _keep(self) -> None:
        self._write(ended=False)  # at once: until then a predecessor's report says that the process is gone
        while not self._left.wait(INTERVAL_S):
            self._write(ended=False)
        self._write(ended=True)

    def _write(self, *, ended: bool) -> None:
        try:
            self._find_predecessor()
            report = self._make(ended=ended)
            for observe in self._observers:
                observe(report)
            self._send(encode(report))
        except ViewsRefusedError as error:
            self._viewer = None
            print(f"Not to be watched in dashboard.py: Redis takes no view ({error}), see docs/access.md", flush=True)
        except ResponseError as error:
            if not trouble_of(error):  # which passes, and the process itself prints lines about that
                self._print_once(f"Redis takes no report ({error})")
        except BrokerError:  # Redis is away: the process itself prints lines about that
            pass
        except Exception as error:  # noqa: BLE001 - a fault in here may cost reports, and no run
            self._print_once(f"a report failed ({name_error(error)})")

    def _send(self, report: bytes) -> None:
        if self._viewer is None or self._actor is None:
            self._store.write(self._actor, report)
            return
        view = self._viewer.take()
        if self._store.write_and_show(self._actor, report, encode_view(view) if view else b""):
            self._viewer.ask()

    def _make(self, *, ended: bool) -> Report:
        reading = self._gather()
        own = self._use.measure() | {"process/restarts": self._restarts or 0.0}
        return replace(
            self._report,
            written=time.time(),
            ended=ended,
            waits_for="" if ended else waiting.current(),
            values=own | reading.values,
            histograms=reading.histograms,
            events=self._events.newest(),
        )

    def _find_predecessor(self) -> None:
        """Count this start, if another process has reported under the same number before."""
        if self._restarts is not None:
            return
        try:
            found = self._store.read([self._actor], MAX_BYTES).get(self._actor)
            self._restarts = decode(found.data).values.get("process/restarts", 0.0) + 1 if found else 0.0
        except (ReportError, ResponseError):  # a user that may not read may still write
            self._restarts = 0.0

    def _print_once(self, why: str) -> None:
        """Print one line in the life of a process."""
        if not self._refused:
            self._refused = True
            print(f"Not shown by run_status.py and dashboard.py: {why}", flush=True)

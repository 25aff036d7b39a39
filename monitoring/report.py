"""A process's report of itself: what it is, what it waits for, its metrics, and the latest events of its life.

Reports travel as JSON. Whoever may write to Redis may have written one, so `decode` checks names, sizes and ranges.
"""

import json
import math
import time
from collections import deque
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta

from rainbow_iqn_apex.common.schema import MOST, Moment, Number, read_record
from rainbow_iqn_apex.memory.broker.leases import printable
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS
from rainbow_iqn_apex.monitoring.metrics import METRICS, PRIORITY_BOUNDS, check_names, known

MAX_BYTES = 1 << 16  # of a report
MAX_EVENTS = 20
_MAX_TEXT = 200  # characters
_Text = Annotated[str, Meta(max_length=_MAX_TEXT)]
_Bin = Annotated[float, Meta(ge=0, le=MOST)]

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

"""A process's report of itself: what it is, what it waits for, its metrics, and the latest events of its life.

Reports travel as JSON. Whoever may write to Redis may have written one, so `decode` checks names, sizes and ranges.
"""

import json
import math
import time
from collections import deque
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, NamedTuple, cast, get_args

from rainbow_iqn_apex.memory.broker.lease_owner import printable
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS
from rainbow_iqn_apex.monitoring.bounded import MOST, moment, number, read_object
from rainbow_iqn_apex.monitoring.metrics import METRICS, PRIORITY_BOUNDS, check_names, known

MAX_BYTES = 1 << 16  # of a report
MAX_EVENTS = 20
_MAX_TEXT = 200  # characters

Role = Literal["learner", "actor", "evaluation actor"]


def title_of(role: str, number: int) -> str:
    """Return a process's name, for people."""
    return role if role == "learner" else f"{role} {number}"


class ReportError(ValueError):
    """Bytes that no process of this project can have written as its report."""


class Event(NamedTuple):
    """Something that happened to a process, such as a checkpoint."""

    at: float  # seconds since 1970
    text: str
    is_alarm: bool = False  # whether a person should look at it


class EventLog:
    """Holds a process's newest events."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque(maxlen=MAX_EVENTS)

    def note(self, text: str, *, is_alarm: bool = False) -> None:
        """Add an event of this moment; an alarm is something that a person should look at."""
        self._events.append(Event(time.time(), text, is_alarm))

    def newest(self) -> tuple[Event, ...]:
        """Return the events, the oldest first."""
        return tuple(self._events)


@dataclass(frozen=True)
class Report:
    """Holds what one process has written of itself."""

    role: Role
    number: int  # of the actor; 0 of the learner
    host: str
    process: int
    began: float  # seconds since 1970, by the clock of the process's machine, as all times here
    written: float
    ended: bool = False  # the process has left in good order
    waits_for: str = ""  # empty: it waits for nothing
    values: dict[str, float] = field(default_factory=dict)  # by the names of monitoring.metrics
    histograms: dict[str, list[float]] = field(default_factory=dict)  # counts of the bins, by the names of METRICS
    events: tuple[Event, ...] = ()

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
        return _report(read_object(data, MAX_BYTES, {f.name for f in fields(Report)}))
    except ValueError as error:
        raise ReportError(f"a report {error}") from error


def _report(content: dict[str, Any]) -> Report:
    values, histograms = content["values"], content["histograms"]
    if not isinstance(values, dict) or not isinstance(histograms, dict):
        raise ValueError("has metrics that are none")
    # A newer release may report metrics that this one does not know.
    sound = {name: number(values[name]) for name in known(values)}
    counts = {name: _counts(bins) for name, bins in histograms.items() if name in METRICS}
    return Report(
        _role(content["role"]),
        _whole(content["number"], MAX_ACTORS),
        _text(content["host"]),
        _whole(content["process"], 10**10),
        moment(content["began"]),
        moment(content["written"]),
        content["ended"] is True,
        _text(content["waits_for"]),
        sound,
        counts,
        _events(content["events"]),
    )


def _role(value: Any) -> Role:
    if value not in get_args(Role):
        raise ValueError("has an unknown role")
    return cast(Role, value)


def _whole(value: Any, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError("has a count that is none, or is too large")
    return value


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > _MAX_TEXT:
        raise ValueError("has a text that is none, or is too long")
    return printable(value)


def _counts(value: Any) -> list[float]:
    if not isinstance(value, list) or len(value) != len(PRIORITY_BOUNDS) + 1:
        raise ValueError("has a histogram of other bins")
    counts = [number(count) for count in value]
    if min(counts) < 0:
        raise ValueError("has a histogram with a negative count")
    return counts


def _events(value: Any) -> tuple[Event, ...]:
    if not isinstance(value, list) or len(value) > MAX_EVENTS:
        raise ValueError("has no list of events, or too many")
    if not all(isinstance(pair, list) and len(pair) == 3 for pair in value):
        raise ValueError("has an event that is none")
    return tuple(Event(moment(at), _text(text), alarm is True) for at, text, alarm in value)

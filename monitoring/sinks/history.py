"""The sink that every run has: `<game>_metrics.jsonl` in the results folder, which the dashboard draws curves from.

A line is a JSON object: {"at": seconds since 1970, "step": agent steps, "values": {name: number}, "events": [...]}.
An event is [seconds since 1970, text, whether a person should look at it]. A learner that goes back to its checkpoint
appends lines with smaller steps.
"""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rainbow_iqn_apex.common import schema
from rainbow_iqn_apex.common.files import named_in_errors, open_own
from rainbow_iqn_apex.monitoring.metrics import known
from rainbow_iqn_apex.monitoring.report import Event
from rainbow_iqn_apex.monitoring.sinks.sink import Moment

_SIGNIFICANT = 6  # digits
_MOST_LATE = 1000  # events


class Line(NamedTuple):
    """A moment as the file has it."""

    at: float
    step: int
    values: dict[str, float]
    events: tuple[Event, ...]


@dataclass(frozen=True)
class _Written:
    at: schema.Moment
    step: schema.Count
    values: dict[str, schema.Number]
    events: list[tuple[schema.Moment, str, bool]]


class HistorySink:
    """Appends a line for each moment."""

    is_live = False

    def __init__(self, path: Path) -> None:
        self._path = path
        self._late: tuple[Event, ...] = ()  # of lines that could not be written

    def take(self, moment: Moment) -> None:
        """Append the metrics of a moment; raises OSError if that fails."""
        values = {name: float(f"{value:.{_SIGNIFICANT}g}") for name, value in moment.values.items()}
        self._late = (*self._late, *moment.events)[-_MOST_LATE:]
        content = {"at": round(moment.at, 1), "step": moment.step, "values": values, "events": self._late}
        with named_in_errors(self._path), open_own(self._path, "ab+") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
            torn = b"" if file.read() in (b"", b"\n") else b"\n"
            file.write(torn + json.dumps(content, allow_nan=False).encode() + b"\n")
        self._late = ()

    def close(self) -> None:
        """Do nothing: every line is written at once."""


def path_of(folder: Path, game: str) -> Path:
    """Return where the history of a game's run is."""
    return folder / f"{game}_metrics.jsonl"


def parse(data: bytes) -> Iterator[Line]:
    """Yield the moments of a file, or of whole lines of it; leave out lines that were torn, or are none."""
    for text in data.splitlines():
        try:
            line = schema.parse(schema.parse_json(text), _Written)
        except ValueError:
            continue
        values = {sys.intern(name): line.values[name] for name in known(line.values)}  # each line repeats the names
        yield Line(line.at, line.step, values, tuple(Event(*event) for event in line.events))

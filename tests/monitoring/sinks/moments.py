"""Moments of runs for the tests of sinks: each number is another."""

import os
import time
from collections.abc import Mapping

from rainbow_iqn_apex.monitoring.metrics import METRICS, PRIORITY_BOUNDS
from rainbow_iqn_apex.monitoring.overview import OverviewReader
from rainbow_iqn_apex.monitoring.report import Event, Report
from rainbow_iqn_apex.monitoring.sinks.sink import Moment
from rainbow_iqn_apex.monitoring.video import Film, FilmSlot

BEGAN = time.time() - 1000
COUNTS = [0.0] * 7 + [5.0, 0.0, 3.0] + [0.0] * (len(PRIORITY_BOUNDS) - 9)  # of the bins of priorities
VALUES = {metric.name: 100.5 + place for place, metric in enumerate(METRICS.values()) if metric.kind != "histogram"}
ACTORS = tuple(
    Report("actor", number, "host", os.getpid(), BEGAN, BEGAN, values={"actor/steps": 7.0 + number, "process/cpu": 0.5})
    for number in range(2)
)


class Taken:
    """A sink that holds the moments which it is handed."""

    def __init__(self, *, is_live: bool = False) -> None:
        self.is_live = is_live
        self.moments: list[Moment] = []

    def take(self, moment: Moment) -> None:
        self.moments.append(moment)

    def close(self) -> None:
        pass


class NobodyElse(OverviewReader):
    """A reader of reports that finds none, and counts how often it is asked."""

    def __init__(self) -> None:
        self.reads = 0

    def read(self) -> None:
        self.reads += 1

    def close(self) -> None:
        pass


def moment(step: int, loss: float = 0.25, films: Mapping[FilmSlot, Film] | None = None) -> Moment:
    """Return a moment that has a value of every metric."""
    values = VALUES | {"train/loss": loss, "time/total_timesteps": float(step)}
    events = (Event(BEGAN, "resumed"),)
    return Moment(
        BEGAN + step, step, values, {"buffer/priorities": COUNTS}, events, ACTORS, films or {}, kept_films=films or {}
    )

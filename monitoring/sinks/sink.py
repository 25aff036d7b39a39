"""What a sink is, by the thread that uses it:

    sink.take(moment)     # every ten seconds, less often in a long run; the first call opens files and connections
    sink.close()          # once, in the end

What a sink raises is printed in one line: the run goes on, and the sink is tried again with the next moment. A sink
that may wait for a network is put into a thread of its own, see `monitoring.sinks.guarded`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rainbow_iqn_apex.monitoring.film import Film, FilmSlot
from rainbow_iqn_apex.monitoring.report import Event, Report


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
    others: tuple[Report, ...] = field(default=())  # the newest reports of the others that run, if a sink is live
    films: Mapping[FilmSlot, Film] = field(default_factory=dict)  # of evaluation episodes, since the last moment


class Sink(Protocol):
    """Takes a run's metrics."""

    is_live: bool  # shows the newest moment alone: it gets one every ten seconds in a long run, too

    def take(self, moment: Moment) -> None:
        """Write the metrics of a moment."""

    def close(self) -> None:
        """Write what is left."""

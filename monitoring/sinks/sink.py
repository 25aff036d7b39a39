"""What a sink is, by the thread that uses it:

    sink.take(moment)     # every ten seconds, less often in a long run
    sink.close()          # once, in the end

A sink may raise OSError for what it cannot write: the run goes on, and the sink is tried again with the next moment.
"""

from dataclasses import dataclass, field
from typing import Protocol

from monitoring.report import Event, Report


@dataclass(frozen=True)
class Moment:
    """The metrics of a run at a moment."""

    at: float  # seconds since 1970
    step: int  # agent steps that were played
    values: dict[str, float]  # the learner's, by the names of METRICS
    histograms: dict[str, list[float]]
    events: tuple[Event, ...]  # of the learner, since the last moment
    others: tuple[Report, ...] = field(default=())  # the newest reports of actors and evaluation actors


class Sink(Protocol):
    """Takes a run's metrics."""

    def take(self, moment: Moment) -> None:
        """Write the metrics of a moment."""

    def close(self) -> None:
        """Write what is left."""

"""Statistics over the last 100 episodes, which are plotted."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from rainbow_iqn_apex.environments.scores import SCORE_EPISODES, EpisodeRecord


@dataclass(frozen=True)
class Summary:
    """Statistics over a set of episodes; all scores are raw (never clipped)."""

    episodes: int
    mean: float  # this and the next three: SABER score
    standard_deviation: float | None  # of a sample (n - 1); None for a single episode
    minimum: float
    maximum: float
    mean_length: float  # agent steps


def _summarise(records: Sequence[EpisodeRecord]) -> Summary:
    scores = [record.score_saber for record in records]
    return Summary(
        episodes=len(records),
        mean=fmean(scores),
        standard_deviation=stdev(scores) if len(scores) > 1 else None,
        minimum=min(scores),
        maximum=max(scores),
        mean_length=fmean(record.length for record in records),
    )


@dataclass(frozen=True)
class Moment:
    """Statistics over the last episodes at one moment of a training run."""

    newest: EpisodeRecord
    longest: EpisodeRecord
    summary: Summary  # of fewer than 100 episodes at the start of a run


def rolling_summaries(records: Sequence[EpisodeRecord], max_moments: int = 1000) -> list[Moment]:
    """Summarise the last 100 episodes at up to `max_moments` moments, the last one at the newest episode.

    Episodes of different actors may be logged slightly out of step, so they are ordered by agent step first. The
    moments are even in agent steps: evenly chosen episodes would crowd where episodes are short.
    """
    ordered = sorted(records, key=lambda record: record.T_actors)
    moments = []
    for stop in _even_stops([record.T_actors for record in ordered], max_moments):
        last = ordered[max(0, stop - SCORE_EPISODES) : stop]
        longest = max(last, key=lambda record: record.length)
        moments.append(Moment(last[-1], longest, _summarise(last)))
    return moments


def _even_stops(steps: list[int], max_moments: int) -> list[int]:
    """Count the episodes that had ended at each of `max_moments` evenly spaced agent steps; `steps` is sorted."""
    if len(steps) <= max_moments:
        return list(range(1, len(steps) + 1))
    first, span, gaps = steps[0], steps[-1] - steps[0], max_moments - 1
    return sorted({bisect_right(steps, first + span * k // gaps) for k in range(max_moments)})

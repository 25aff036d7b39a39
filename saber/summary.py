"""Statistics over episodes: of an evaluation, and of the last 100 training episodes, which are plotted."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from saber.scores import FRAMES_PER_SECOND, EpisodeRecord

FRAMES_PER_MINUTE = 60 * FRAMES_PER_SECOND


@dataclass(frozen=True)
class Summary:
    """Statistics over a set of episodes; all scores are raw (never clipped)."""

    episodes: int
    mean: float  # this and the next four: SABER score
    standard_deviation: float | None  # of a sample (n - 1); None for a single episode
    median: float
    minimum: float
    maximum: float
    mean_30min: float  # score after 30 minutes of game time
    mean_5min: float  # score after 5 minutes of game time
    mean_length: float  # agent steps
    mean_minutes: float  # game time


def summarise(records: Sequence[EpisodeRecord], action_repeat: int = 4) -> Summary:
    """Summarise at least one episode; `action_repeat` is the number of frames per agent step."""
    if not records:
        raise ValueError("there is no episode to summarise")
    scores = [record.score_saber for record in records]
    mean_length = fmean(record.length for record in records)
    return Summary(
        episodes=len(records),
        mean=fmean(scores),
        standard_deviation=stdev(scores) if len(scores) > 1 else None,
        median=median(scores),
        minimum=min(scores),
        maximum=max(scores),
        mean_30min=fmean(record.score_30min for record in records),
        mean_5min=fmean(record.score_5min for record in records),
        mean_length=mean_length,
        mean_minutes=mean_length * action_repeat / FRAMES_PER_MINUTE,
    )


@dataclass(frozen=True)
class Moment:
    """Statistics over the last episodes at one moment of a training run."""

    newest: EpisodeRecord
    longest: EpisodeRecord
    summary: Summary  # of fewer episodes than the window holds at the start of a run


def rolling_summaries(
    records: Sequence[EpisodeRecord], window: int = 100, max_moments: int = 1000, action_repeat: int = 4
) -> list[Moment]:
    """Summarise the last `window` episodes at up to `max_moments` moments, of which the newest is always one.

    Episodes of different actors may be logged slightly out of step, so they are ordered by agent step first. The
    moments are even in agent steps: evenly chosen episodes would crowd where episodes are short.
    """
    ordered = sorted(records, key=lambda record: record.T_actors)
    moments = []
    for stop in _even_stops([record.T_actors for record in ordered], max_moments):
        last = ordered[max(0, stop - window) : stop]
        longest = max(last, key=lambda record: record.length)
        moments.append(Moment(last[-1], longest, summarise(last, action_repeat)))
    return moments


def _even_stops(steps: list[int], max_moments: int) -> list[int]:
    """Numbers of episodes that had ended at `max_moments` evenly spaced agent steps; `steps` is sorted."""
    if len(steps) <= max_moments:
        return list(range(1, len(steps) + 1))
    first, span, gaps = steps[0], steps[-1] - steps[0], max_moments - 1
    return sorted({bisect_right(steps, first + span * k // gaps) for k in range(max_moments)})

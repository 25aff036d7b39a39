"""Statistics over the last 100 episodes, which are plotted."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from rainbow_iqn_apex.environments.scores import SCORE_EPISODES, EpisodeRecord

_MOST_KEPT = 3000  # episodes of a log that grows
_OUT_OF_STEP = 1000  # the newest episodes, between which those of other actors may still be logged


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


class ScoreCurve:
    """The rolling summaries of a log that grows, at up to `most` moments, in memory that does not grow with the log.

    Of all but some thousands of the newest episodes, moments alone are kept: between `most` and twice as many. The
    curve depends on the episodes and their order alone, not on how many are added at once.
    """

    def __init__(self, most: int = 1000, records: Iterable[EpisodeRecord] = ()) -> None:
        self.episodes = 0  # that were added
        self._most = most
        self._old: list[Moment] = []  # of the episodes before `_newest`, `_gap` agent steps apart
        self._gap = 0
        self._newest: list[EpisodeRecord] = []  # and, after `_old`, those before them that a score counts
        self._moments: Sequence[Moment] | None = ()  # None: to be computed, which takes long
        self.add(records)

    def add(self, records: Iterable[EpisodeRecord]) -> None:
        """Add the episodes that have come since."""
        for record in records:
            self.episodes += 1
            self._newest.append(record)
            self._moments = None
            if len(self._newest) > _MOST_KEPT:
                self._newest.sort(key=_step)
                self._fold(len(self._newest) - _OUT_OF_STEP)

    @property
    def moments(self) -> Sequence[Moment]:
        """Return the summaries, the last one at the newest episode."""
        if self._moments is None:
            moments = [*self._old, *self._summarise(sorted(self._newest, key=_step))]
            stops = _even_stops([_step(moment.newest) for moment in moments], self._most)
            self._moments = [moments[stop - 1] for stop in stops]
        return self._moments

    def _summarise(self, ordered: Sequence[EpisodeRecord]) -> list[Moment]:
        """Return the moments of these episodes that come after the old ones, as far apart as these.

        Actors may log their episodes slightly out of step, so these are ordered by agent step. The moments are even in
        agent steps: evenly chosen episodes would crowd where episodes are short.
        """
        span = _step(ordered[-1]) - _step(ordered[0])
        after = _step(self._old[-1].newest) if self._old else -1
        moments = []
        for stop in _even_stops(list(map(_step, ordered)), 2 + span // self._gap if self._gap else self._most):
            last = ordered[max(0, stop - SCORE_EPISODES) : stop]
            if _step(last[-1]) > after:
                moments.append(Moment(last[-1], max(last, key=lambda record: record.length), _summarise(last)))
        return moments

    def _fold(self, count: int) -> None:
        """Keep the moments of the first `count` of the newest episodes instead of the episodes."""
        folded = self._newest[:count]
        self._gap = self._gap or max(1, (_step(folded[-1]) - _step(folded[0])) // (self._most - 1))
        self._old += self._summarise(folded)
        self._newest = self._newest[count + 1 - SCORE_EPISODES :]
        while len(self._old) > 2 * self._most:
            self._old = [self._old[0], *self._old[:0:-2][::-1]]
            self._gap *= 2


def _step(record: EpisodeRecord) -> int:
    return record.T_actors


def _even_stops(steps: list[int], max_moments: int) -> list[int]:
    """Count the episodes that had ended at each of `max_moments` evenly spaced agent steps; `steps` is sorted."""
    if len(steps) <= max_moments:
        return list(range(1, len(steps) + 1))
    span = steps[-1] - steps[0]
    return sorted({bisect_right(steps, steps[0] + span * k // (max_moments - 1)) for k in range(max_moments)})


_LEAST = 5  # episodes in each half of a trend


@dataclass(frozen=True)
class RecentScore:
    """Means of the newest episodes, 100 at most."""

    score: float
    length: float  # agent steps
    episodes: int  # that these are means of
    before: float | None  # mean score of earlier ones; None while there are too few for a trend


def recent_score(records: Sequence[EpisodeRecord]) -> RecentScore | None:
    """Return what the newest of these episodes score, None if there are none; another thread may append meanwhile.

    `before` is the mean of as many episodes before the newest 100. Of fewer than 200 it is that of the older half.
    """
    found = list(records)[-2 * SCORE_EPISODES :][::-1]  # a deque must not grow while one goes through it
    if not found:
        return None
    newest = found[:SCORE_EPISODES]
    half = len(found) // 2
    older = found[half : 2 * half] if half >= _LEAST else []
    return RecentScore(
        fmean(record.score_saber for record in newest),
        fmean(record.length for record in newest),
        len(newest),
        fmean(record.score_saber for record in older) if older else None,
    )

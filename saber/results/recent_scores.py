"""How a run scores now and how it scored before: one reckoning for metrics, log lines and screens."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from rainbow_iqn_apex.environments.scores import SCORE_EPISODES, EpisodeRecord

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
    newest, half = found[:SCORE_EPISODES], len(found) // 2
    older = found[half : 2 * half] if half >= _LEAST else []
    return RecentScore(
        fmean(record.score_saber for record in newest),
        fmean(record.length for record in newest),
        len(newest),
        fmean(record.score_saber for record in older) if older else None,
    )

"""Training scores as SABER reports them (Toromanoff et al. 2019, arXiv 1908.04683), and their curves.

The score at a mark is the mean over the last 100 consecutive training episodes that had ended by then. An episode that
ends after the mark is not among them, whenever it began. A run that has not made the mark's frames, or has not ended
100 episodes by then, has no score there.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rainbow_iqn_apex.environments.scores import MARKS, SCORE_EPISODES
from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.saber.report.runs import Run

LIMITS = ("5min", "30min", "saber")  # of game time per episode; the columns of `Run.scores`
_POINTS = 120  # of a curve


def score_at(run: Run, mark: int) -> list[float] | None:
    """Mean scores of a run [LIMITS] at `mark` frames; None if it has none there."""
    ended = int(np.searchsorted(run.frames, mark, side="right"))
    if run.reached < mark or ended < SCORE_EPISODES:
        return None
    means: list[float] = run.scores[ended - SCORE_EPISODES : ended].mean(0).tolist()
    return means


class Now(NamedTuple):
    """Score and frames that a run without a score at a mark has come to."""

    seed: Any  # as its record has it; None if it is not known
    log: str  # path for readers
    frames: int
    episodes: int  # newest ones that the scores are the mean of
    scores: list[float]  # [LIMITS]


def score_now(run: Run) -> Now | None:
    """Mean scores over the last 100 episodes, or all so far, of a run that has no score at a mark; None if it has."""
    if any(score_at(run, mark) for mark in MARKS):
        return None
    episodes = min(SCORE_EPISODES, len(run.scores))
    return Now(run.settings.get("seed"), run.name, run.reached, episodes, newest_scores(run))


def newest_scores(run: Run) -> list[float]:
    """Return mean scores [LIMITS] over the last 100 episodes, or all so far."""
    means: list[float] = run.scores[-SCORE_EPISODES:].mean(0).tolist()
    return means


class Curves(NamedTuple):
    """The training curves of a game's runs."""

    frames: Array  # [points]
    runs: Array  # [runs, points] see `curve`


def curves(runs: Sequence[Run]) -> Curves:
    """The curves of one game's runs, at the same frames."""
    frames = curve_frames(runs)
    return Curves(frames, np.array([curve(run, frames) for run in runs]))


def curve_frames(runs: Sequence[Run]) -> Array:
    """Frames [points] at which a game's curves are drawn: even, and the ends of all runs."""
    ends = [run.frames[-1] for run in runs]
    return np.unique(np.concatenate([np.linspace(0, max(ends), _POINTS + 1)[1:].astype(np.int64), ends]))


def curve(run: Run, frames: Array) -> Array:
    """Mean score of whole episodes [points] of the last 100 episodes, or of those so far; nan before the first end and
    after the last.
    """
    sums = np.concatenate([[0.0], np.cumsum(run.scores[:, -1])])  # [episodes + 1]
    ended = np.searchsorted(run.frames, frames, side="right")
    first = np.maximum(0, ended - SCORE_EPISODES)
    means: Array = (sums[ended] - sums[first]) / np.maximum(1, ended - first)
    means[(ended == 0) | (frames > run.frames[-1])] = np.nan
    return means

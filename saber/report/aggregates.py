"""Statistics over games of normalised scores, with stratified bootstrap intervals.

After Agarwal et al. 2021, arXiv 2108.13264, through scipy: each game's runs are drawn anew among themselves, games are
not. Scores are one array [runs] for each game; games may differ in their number of runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import bootstrap, trim_mean

from rainbow_iqn_apex.memory.rows import Array

RESAMPLES = 2000
CONFIDENCE = 0.95
TRIMMED = 0.25  # cut off at either end for the interquartile mean
_BATCH = 250  # resamples held at once


@dataclass(frozen=True)
class Estimate:
    """A statistic with its percentile interval, which needs two runs or more of every game."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Aggregate:
    """Normalised scores over games."""

    games: int
    median: Estimate  # over games, of the means over runs
    mean: Estimate
    iqm: Estimate  # mean of the middle half of the runs of all games; a game with more runs weighs more
    above: int  # games whose mean over runs exceeds 1, which is the reference


def aggregate(scores: Sequence[Array]) -> Aggregate | None:
    """Summarise normalised scores; None without a game."""
    if not scores:
        return None
    values = _statistics(*scores)
    low, high = _interval(scores, _statistics)
    median, mean, iqm = (
        Estimate(float(value), None if low is None else float(low[i]), None if high is None else float(high[i]))
        for i, value in enumerate(values)
    )
    return Aggregate(len(scores), median, mean, iqm, above=sum(bool(game.mean() > 1) for game in scores))


class Profile(NamedTuple):
    """A performance profile [thresholds] with its interval, which needs two runs or more of every game."""

    fraction: Array
    low: Array | None
    high: Array | None


def profile(scores: Sequence[Array], thresholds: Array) -> Profile:
    """Mean over games of the fraction of runs above each threshold."""

    def fractions(*samples: Array, axis: int = -1) -> Array:
        total = np.zeros((*samples[0].shape[:-1], len(thresholds)))  # [..., thresholds]
        for sample in samples:
            for run in np.moveaxis(sample, axis, 0):  # [...]
                total += (run[..., None] > thresholds) / sample.shape[axis]
        return np.moveaxis(total / len(samples), -1, 0)  # [thresholds, ...]

    return Profile(fractions(*scores), *_interval(scores, fractions))


def _statistics(*samples: Array, axis: int = -1) -> Array:
    """Median, mean and interquartile mean [3, ...] of samples [..., runs], one a game."""
    means = np.stack([sample.mean(axis) for sample in samples], -1)  # [..., games]
    pooled = np.concatenate(samples, axis)
    return np.stack([np.median(means, -1), means.mean(-1), trim_mean(pooled, TRIMMED, axis=axis)])


def _interval(scores: Sequence[Array], statistic: Callable[..., Array]) -> tuple[Array | None, Array | None]:
    if min(map(len, scores)) < 2:
        return None, None
    result = bootstrap(
        scores,
        statistic,
        n_resamples=RESAMPLES,
        batch=_BATCH,
        vectorized=True,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(0),  # equal runs give equal reports
    )
    return result.confidence_interval.low, result.confidence_interval.high

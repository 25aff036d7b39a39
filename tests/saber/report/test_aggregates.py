"""Statistics over games against slow references; the bootstrap against a loop that draws runs by hand."""

import random
from statistics import fmean, median

import numpy as np
import pytest

from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.saber.report.aggregates import aggregate, profile


def games(counts: list[int], seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.normal(rng.uniform(0, 3), 0.5, count) for count in counts]


def interquartile_mean(values: list[float]) -> float:
    cut = len(values) // 4
    return fmean(sorted(values)[cut : len(values) - cut])


@pytest.mark.parametrize("counts", [[3] * 11, [1], [2, 5, 3, 1]])
def test_the_statistics_are_those_of_the_paper(counts: list[int]) -> None:
    # Mutations: the median of all runs; TRIMMED = 0.2; `>= 0`.
    scores = games(counts)
    found = aggregate(scores)
    assert found
    means = [fmean(game) for game in scores]
    assert found.games == len(counts)
    assert found.median.value == pytest.approx(median(means))
    assert found.mean.value == pytest.approx(fmean(means))
    assert found.iqm.value == pytest.approx(interquartile_mean([run for game in scores for run in game]))
    assert found.above == sum(mean > 1 for mean in means)


def test_the_intervals_are_those_of_drawing_runs_within_games() -> None:
    # Mutation: paired=True, or drawing games as well.
    scores = games([3, 4, 5, 3, 3, 6], seed=1)
    rng = random.Random(0)
    draws = [[rng.choices(list(game), k=len(game)) for game in scores] for _ in range(5000)]
    slow = {
        "median": [median(map(fmean, draw)) for draw in draws],
        "mean": [fmean(map(fmean, draw)) for draw in draws],
        "iqm": [interquartile_mean([run for game in draw for run in game]) for draw in draws],
    }
    found = aggregate(scores)
    assert found
    for name, values in slow.items():
        estimate = getattr(found, name)
        low, high = np.quantile(values, [0.025, 0.975])
        assert estimate.low == pytest.approx(low, abs=0.1 * (high - low))
        assert estimate.high == pytest.approx(high, abs=0.1 * (high - low))
        assert estimate.low < estimate.value < estimate.high
    assert found == aggregate(scores), "equal runs give equal intervals"


def test_a_game_with_one_run_leaves_no_interval() -> None:
    found = aggregate(games([3, 1, 3]))
    assert found and found.mean.low is found.mean.high is found.iqm.low is found.median.high is None
    assert aggregate([]) is None


def test_runs_that_agree_give_an_interval_of_no_width() -> None:
    found = aggregate([np.array([1.0, 1.0]), np.array([3.0, 3.0])])
    assert found and (found.mean.low, found.mean.value, found.mean.high) == (2, 2, 2)
    assert found.above == 1, "a game at its reference is not above it"


def test_the_profile_counts_what_is_above() -> None:
    # Mutation: `>=`.
    scores = [np.array([0.5, 1.0]), np.array([2.0, 2.0, 4.0])]
    fraction, low, high = profile(scores, np.array([0.0, 0.5, 1.0, 3.0, 4.0]))
    assert fraction == pytest.approx([1, 0.75, 0.5, 1 / 6, 0])
    assert low is not None and high is not None
    assert (low <= fraction).all() and (fraction <= high).all() and high[3] > low[3]
    assert profile([np.array([1.0])], np.array([0.5]))[1] is None

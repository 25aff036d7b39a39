from collections.abc import Iterable

import numpy as np
import pytest

from rainbow_iqn_apex.environments.scores import EpisodeRecord, EpisodeScore, round_score


def score_of(rewards: Iterable[float], action_repeat: int = 4) -> EpisodeScore:
    score = EpisodeScore(action_repeat)
    for reward in rewards:
        score.add(reward)
    return score


@pytest.mark.parametrize("action_repeat", [4, 3, 1])
def test_each_limit_takes_the_steps_before_it_and_no_more(action_repeat: int) -> None:
    # Steps 4500 and 27000 at a repeat of 4 are the last ones; `<` for `<=` loses 100, and one step too many adds 10.
    five, thirty = 18_000 // action_repeat, 108_000 // action_repeat
    rewards = np.zeros(thirty + 5)
    rewards[[0, five - 1, five, thirty - 1, thirty]] = [1, 100, 10, 1000, 10]
    score = score_of(rewards, action_repeat)
    assert (score.score_5min, score.score_30min, score.total) == (101, 1111, 1121)
    assert score.length == thirty + 5


def test_a_short_episode_has_the_same_score_everywhere_and_nothing_is_clipped() -> None:
    record = score_of([5, -2.5, 0, 10_000]).record(env=3, episode=7, end="stuck")
    assert record == EpisodeRecord(0, 0, 0, 3, 7, 10_002.5, 10_002.5, 10_002.5, 4, "stuck")


def test_a_score_has_no_error_of_adding_floats_and_whole_numbers_stay_exact() -> None:
    # Mutation: round whole numbers, too.
    assert sum([0.1] * 8) == 0.7999999999999999
    assert score_of([0.1] * 8).record(0, 0, "").score_saber == 0.8
    assert score_of([123_456_789_012_345.0, -1.0]).record(0, 0, "").score_saber == 123_456_789_012_344
    assert round_score(-1234.56789012345) == -1234.567890 and np.isnan(round_score(float("nan")))


@pytest.mark.parametrize("at", [0, 17, 4500, 4501, 27_000, 27_001])
def test_a_restored_score_counts_on(at: int) -> None:
    rewards = np.random.default_rng(1).integers(-3, 9, size=27_100).astype(float)
    saved = score_of(rewards[:at]).snapshot()
    restored = EpisodeScore(4)
    restored.add(99)  # a restore must leave nothing of what was there
    restored.restore(saved)
    for reward in rewards[at:]:
        restored.add(reward)
    assert restored.record(0, 0, "") == score_of(rewards).record(0, 0, "")

import numpy as np
import pytest
from scipy import stats

from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.saber.results.atari_scores import GameScores
from rainbow_iqn_apex.saber.results.evaluation_summary import format_evaluation, student_interval


def episode(number: int, score: float, length: int = 900, end: str = "game_over") -> EpisodeRecord:
    return EpisodeRecord(0, 0, 0, 0, number, score / 4, score / 2, score, length, end)


@pytest.mark.parametrize("count", [2, 3, 100])
def test_the_interval_is_students(count: int) -> None:
    values = np.random.default_rng(count).exponential(size=count)
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert student_interval(values.tolist()) == pytest.approx((low, high))


def test_equal_values_leave_no_doubt_and_one_value_says_nothing() -> None:
    assert student_interval([7.0, 7.0, 7.0]) == (7, 7)
    assert student_interval([7.0]) is None


def test_the_summary() -> None:
    records = [episode(0, 10), episode(1, 20, 1800), episode(2, 60, 2700, "stuck"), episode(3, 30, 1800)]
    assert format_evaluation(records, 4, GameScores(True, 0.0, 60.0, None, {})).splitlines() == [
        "4 episodes                          SABER score  at 30 minutes   at 5 minutes",
        "  mean                                    30.00          15.00           7.50",
        "      95 % interval, from                 -4.37          -2.19          -1.09",
        "      to                                  64.37          32.19          16.09",
        "  standard deviation                      21.60          10.80           5.40",
        "  median                                  25.00          12.50           6.25",
        "  minimum                                 10.00           5.00           2.50",
        "  maximum                                 60.00          30.00          15.00",
        "  mean, in % of the human                 50.00          25.00          12.50",
        "  mean, in % of the world record              –              –              –",
        "  length, mean: 1,800.00 agent steps, 2.00 minutes of game time",
        "  ended by: game_over 3, stuck 1",
        "  interval: Student's t, of the mean over episodes of this one snapshot; other training seeds vary more",
        "  normalised: 0 % is random play (0), 100 % the human (60), or the world record (unknown)",
    ]


def test_one_episode_of_a_game_without_a_reference() -> None:
    lines = format_evaluation([episode(0, 1234567)], 4, None).splitlines()
    assert lines[0].split()[:2] == ["1", "episode"]
    assert lines[2].split()[-3:] == ["–"] * 3
    assert not any("normalised" in line for line in lines)
    assert "world record (7,654,321.5)" in format_evaluation([episode(0, 1)], 4, GameScores(True, 0, 60, 7654321.5, {}))

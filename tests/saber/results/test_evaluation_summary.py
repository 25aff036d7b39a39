import numpy as np
import pytest
from scipy import stats

from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.saber.results.evaluation_log import format_evaluation, student_interval
from rainbow_iqn_apex.saber.results.task import Task


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
    assert format_evaluation(records, 4, Task("surround")).splitlines() == [
        "4 episodes                          SABER score  at 30 minutes   at 5 minutes",
        "  mean                                    30.00          15.00           7.50",
        "      95 % interval, from                 -4.37          -2.19          -1.09",
        "      to                                  64.37          32.19          16.09",
        "  standard deviation                      21.60          10.80           5.40",
        "  median                                  25.00          12.50           6.25",
        "  minimum                                 10.00           5.00           2.50",
        "  maximum                                 60.00          30.00          15.00",
        "  mean, in % of the human                242.42         151.52         106.06",
        "  mean, in % of the world record              –              –              –",
        "  length, mean: 1,800.00 agent steps, 2.00 minutes of game time",
        "  ended by: game_over 3, stuck 1",
        "  interval: Student's t, of the mean over episodes of this one snapshot; other training seeds vary more",
        "  normalised: 0 % is random play (-10), 100 % the human (6.5), or the world record (unknown)",
    ]


def test_one_episode_of_a_game_without_a_reference() -> None:
    lines = format_evaluation([episode(0, 1234567)], 4, Task("no_such_game")).splitlines()
    assert lines[0].split()[:2] == ["1", "episode"]
    assert lines[2].split()[-3:] == ["–"] * 3
    assert not any("normalised" in line for line in lines)
    assert "world record (10,506,650)" in format_evaluation([episode(0, 1)], 4, Task("asteroids"))


def test_another_environment_has_neither_sabers_scores_nor_its_minutes() -> None:
    lines = format_evaluation([episode(0, 10, 525)], 4, Task("basic", "vizdoom:basic")).splitlines()
    assert lines[0].split() == ["1", "episode", "score"] and lines[1].split() == ["mean", "10.00"]
    assert "  length, mean: 525.00 agent steps" in lines

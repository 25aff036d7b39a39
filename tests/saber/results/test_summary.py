import numpy as np
import pytest

from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.saber.results.summary import Moment, rolling_summaries, summarise
from tests.saber.results.records import stream


def episode(score: float, length: int, steps: int = 0) -> EpisodeRecord:
    return EpisodeRecord(steps, steps // 4, 0, 0, 0, score / 4, score / 2, score, length, "game_over")


def test_the_numbers_of_a_small_example() -> None:
    summary = summarise([episode(score, length) for score, length in [(10, 900), (20, 1800), (60, 2700), (30, 1800)]])
    assert summary.episodes == 4
    assert (summary.mean, summary.minimum, summary.maximum) == (30, 10, 60)
    assert summary.standard_deviation == pytest.approx((1400 / 3) ** 0.5)  # mutation: n for n - 1
    assert summary.mean_length == 1800


def test_nothing_to_summarise_is_an_error() -> None:
    with pytest.raises(ValueError, match="no episode"):
        summarise([])


def check_moment(moment: Moment, last: list[EpisodeRecord]) -> None:
    """Compare with NumPy on the episodes that the moment should describe."""
    scores, summary = np.array([record.score_saber for record in last]), moment.summary
    assert summary.episodes == len(last)
    assert moment.newest == last[-1]
    assert moment.longest in last
    assert moment.longest.length == max(record.length for record in last)
    assert summary.mean == pytest.approx(scores.mean())
    assert (summary.minimum, summary.maximum) == (scores.min(), scores.max())
    assert summary.mean_length == pytest.approx(np.mean([record.length for record in last]))
    if len(last) == 1:
        assert summary.standard_deviation is None
    else:
        assert summary.standard_deviation == pytest.approx(scores.std(ddof=1))


@pytest.mark.parametrize(("count", "window"), [(1, 100), (2, 100), (99, 100), (100, 100), (101, 100), (350, 7)])
def test_every_episode_has_a_moment_while_they_are_few(count: int, window: int) -> None:
    # Mutation: `window + 1` or `window - 1` episodes.
    records = stream(count, seed=count)
    ordered = sorted(records, key=lambda record: record.T_actors)
    moments = rolling_summaries(records, window)
    assert len(moments) == count
    for index, moment in enumerate(moments):
        check_moment(moment, ordered[: index + 1][-window:])


@pytest.mark.parametrize("seed", range(5))
def test_many_episodes_are_thinned_evenly(seed: int) -> None:
    # Mutation: `bisect_left`, or `range(max_moments - 1)`.
    records = stream(2000, seed)
    ordered = sorted(records, key=lambda record: record.T_actors)
    moments = rolling_summaries(records, 100, max_moments=50)
    assert len(moments) <= 50
    assert moments[-1].newest == ordered[-1]
    places = [ordered.index(moment.newest) for moment in moments]
    for place, moment in zip(places, moments, strict=True):
        check_moment(moment, ordered[: place + 1][-100:])
    steps = [moment.newest.T_actors for moment in moments]
    assert steps == sorted(set(steps))
    even = (ordered[-1].T_actors - ordered[0].T_actors) / 49
    assert max(np.diff(steps)) <= even + 9500  # at most one episode's gap more than even
    assert min(np.diff(steps)) >= even - 9500


def test_a_stream_at_one_step_is_one_moment() -> None:
    moments = rolling_summaries([episode(score, 1, steps=5) for score in range(300)], max_moments=10)
    assert len(moments) == 1
    assert moments[0].summary.mean == np.mean(range(200, 300))


def test_no_records_give_no_moments() -> None:
    assert rolling_summaries([]) == []

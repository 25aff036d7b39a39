import numpy as np
import pytest

from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.saber.results.summary import Moment, rolling_summaries
from tests.saber.results.records import stream


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


@pytest.mark.parametrize("count", [1, 2, 99, 100, 101, 350])
def test_every_episode_has_a_moment_while_they_are_few(count: int) -> None:
    # Mutation: `SCORE_EPISODES + 1` or `- 1` episodes; n for n - 1 in the standard deviation.
    records = stream(count, seed=count)
    ordered = sorted(records, key=lambda record: record.T_actors)
    moments = rolling_summaries(records)
    assert len(moments) == count
    for index, moment in enumerate(moments):
        check_moment(moment, ordered[: index + 1][-100:])


@pytest.mark.parametrize("seed", range(5))
def test_many_episodes_are_thinned_evenly(seed: int) -> None:
    # Mutation: `bisect_left`, or `range(max_moments - 1)`.
    records = stream(2000, seed)
    ordered = sorted(records, key=lambda record: record.T_actors)
    moments = rolling_summaries(records, max_moments=50)
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
    moments = rolling_summaries([EpisodeRecord(5, score_saber=score) for score in range(300)], max_moments=10)
    assert len(moments) == 1
    assert moments[0].summary.mean == np.mean(range(200, 300))

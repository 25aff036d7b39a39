import random

import numpy as np
import pytest

from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.saber.results.summary import Moment, ScoreCurve
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
    moments = ScoreCurve(records=records).moments
    assert len(moments) == count
    for index, moment in enumerate(moments):
        check_moment(moment, ordered[: index + 1][-100:])


@pytest.mark.parametrize("seed", range(5))
def test_many_episodes_are_thinned_evenly(seed: int) -> None:
    # Mutation: `bisect_left`, or `range(max_moments - 1)`.
    records = stream(2000, seed)
    ordered = sorted(records, key=lambda record: record.T_actors)
    moments = ScoreCurve(50, records).moments
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


@pytest.mark.parametrize("part", [13, 900, 12_000])
def test_a_log_that_grows_has_the_same_curve_in_bounded_memory(part: int) -> None:
    # Mutations: keep no episodes of the score before; none that others overtake; all moments.
    records, curve = stream(12_000, part), ScoreCurve(50)
    for start in range(0, len(records), 400):  # an actor overtakes others by hundreds of episodes
        records[start : start + 400] = random.Random(start).sample(records[start : start + 400], 400)
    for start in range(0, len(records), part):
        curve.add(records[start : start + part])
        assert len(curve._newest) <= 3000 and len(curve._old) <= 100
    ordered = sorted(records, key=lambda record: record.T_actors)
    steps = [moment.newest.T_actors for moment in curve.moments]
    even = (ordered[-1].T_actors - ordered[0].T_actors) / 49
    assert steps == sorted(set(steps)) and (steps[0], steps[-1]) == (ordered[0].T_actors, ordered[-1].T_actors)
    assert 40 <= len(steps) <= 50 and max(np.diff(steps)) <= 2 * even + 9500
    for moment in curve.moments:
        check_moment(moment, ordered[: ordered.index(moment.newest) + 1][-100:])


def test_a_stream_at_one_step_is_one_moment() -> None:
    moments = ScoreCurve(10, [EpisodeRecord(5, score_saber=score) for score in range(300)]).moments
    assert len(moments) == 1
    assert moments[0].summary.mean == np.mean(range(200, 300))

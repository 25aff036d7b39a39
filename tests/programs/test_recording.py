"""Which episodes' videos an evaluation keeps."""

import random
from pathlib import Path
from typing import cast

import pytest

from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.programs.evaluation import program
from rainbow_iqn_apex.programs.evaluation.recording import Videos
from rainbow_iqn_apex.programs.evaluation.workers import OwnProcess
from rainbow_iqn_apex.saber.results.evaluation_log import EvaluatedEpisode
from tests.programs.test_model_card import Players


def episode(number: int, score: float) -> EvaluatedEpisode:
    return EvaluatedEpisode(number, EpisodeRecord(episode=number, score_saber=score, length=10, end="stuck"))


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([5.0], {"best": 0}),
        ([5.0, 7.0], {"best": 1, "worst": 0}),
        ([5.0, 7.0, 6.0], {"best": 1, "worst": 0, "median": 2}),
        ([5.0, 5.0, 5.0], {"best": 0, "worst": 2, "median": 1}),
        ([4.0, 1.0, 2.0, 3.0], {"best": 0, "worst": 1, "median": 2}),
    ],
)
def test_the_best_the_median_and_the_worst_episode(scores: list[float], expected: dict[str, int]) -> None:
    episodes = [episode(number, score) for number, score in enumerate(scores)]
    for some in (episodes, episodes[::-1]):
        assert {place: chosen.seed for place, chosen in Videos(None).choose(some).items()} == expected


@pytest.mark.parametrize("seed", range(5))
def test_a_handful_of_videos_is_kept_that_ends_with_the_right_ones(seed: int, tmp_path: Path) -> None:
    # Mutations: keep the last ones; forget the best one when it is far from the median.
    videos, draw = Videos(tmp_path), random.Random(seed)
    episodes = [episode(number, draw.gauss(0, 1)) for number in range(200)]
    for _, record in episodes:
        videos.path(record.episode).touch()
        videos.add(record, 1)
        assert len([*tmp_path.iterdir()]) <= 10
    chosen = videos.choose(episodes)
    ordered = sorted(episodes, key=lambda one: -one.record.score_saber)
    places = {place: ordered.index(one) for place, one in chosen.items()}
    assert places == {"best": 0, "median": 100, "worst": 199}
    assert {chosen["best"].seed, chosen["worst"].seed} <= videos.speeds.keys()
    assert {int(path.stem) for path in tmp_path.iterdir()} == videos.speeds.keys(), "any other is played again"


def test_a_median_without_a_video_is_played_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Mutations: show a neighbour of the median; delete the video of an episode and still count on it.
    videos, players = Videos(tmp_path), Players(stopped=False)
    episodes = [episode(number, number) for number in range(200)]  # so that the median rises while they are played
    for _, record in episodes:
        videos.path(record.episode).touch()
        videos.add(record, 1)
    chosen = videos.choose(episodes)
    program._play_again(cast(OwnProcess, players), [*chosen.values()], videos)
    assert "Playing again what was played without a video: episode 99\n" in capsys.readouterr().out
    assert {place: one.seed for place, one in chosen.items()} == {"best": 199, "median": 99, "worst": 0}
    assert videos.path(99).read_text() == "episode 99"


def test_an_episode_of_an_earlier_start_may_be_the_median(tmp_path: Path) -> None:
    # Mutation: choose among the videos that there are, so that three videos of ninety-seven new episodes are the worst.
    videos = Videos(tmp_path)
    episodes = [episode(number, number) for number in range(5)]
    videos.path(0).touch()
    videos.add(episodes[0].record, 1)
    for one in episodes[1:]:
        videos.add(one.record)
    assert {place: one.seed for place, one in videos.choose(episodes).items()} == {"best": 4, "median": 2, "worst": 0}

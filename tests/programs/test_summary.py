"""The learner's log line about score, speed and remaining time."""

import sys
from pathlib import Path

import pytest

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.programs.learner.gauges import Summary
from rainbow_iqn_apex.programs.learner.update_scheduler import Progress
from rainbow_iqn_apex.saber.results.training_log import TrainingLog


def test_the_line_tells_score_speed_and_remaining_time(tmp_path: Path) -> None:
    # Mutations: take the speed of playing for the remaining time; compare with the newest episodes themselves; count
    # the time before the first updates, in which the actors start.
    log, progress = TrainingLog(tmp_path / "pong.csv"), Progress("run", T_actors=1000, T_learner=800)
    now = [50.0]
    given = options.parse(["--T-max", "1001400", "--learn-start", "8000"], "x", "")
    summary = Summary(given, progress, log, 4, lambda: now[0])
    assert summary.line() == "No episode yet"
    now[0] += 600
    summary.measure()
    log.append([EpisodeRecord(episode=n, score_saber=n % 2 if n >= 100 else 0, end="game_over") for n in range(200)])
    now[0] += 0.5
    progress.T_actors, progress.T_learner = 2000, 1400
    assert summary.line() == (
        "Score 0.50 up from 0.00, mean of the last 100 episodes, 2,000 steps/s, 8,000 frames/s, 14 min left"
    )


@pytest.mark.parametrize(
    ("words", "plot", "command"),
    [
        ("--path-to-results r", "r/Reward_space_invaders.html", ""),
        ("--game pong,breakout --path-to-results r --seed 7", "r/Reward_pong-breakout_*.html", "--game pong,breakout "),
        ("--env gymnasium:CartPole-v1 --proba-sticky-actions 0 --path-to-results r", "r/Reward_CartPole-v1.html",
         "--env gymnasium:CartPole-v1 --proba-sticky-actions 0.0 "),
    ],
)  # fmt: skip
def test_the_result_has_score_plot_and_the_command_that_evaluates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, plot: str, command: str
) -> None:
    # Mutations: leave out the rules of the evaluation, which the snapshot does not decide; name plain `python`.
    monkeypatch.setattr(sys, "executable", str(Path(".my env/bin/python").absolute()))
    given = options.parse(words.split(), "x", "")
    log = TrainingLog(tmp_path / "log.csv")
    log.part(len(given.entries))
    summary = Summary(given, Progress("run"), log, 4)
    evaluate = f"'.my env/bin/python' test_multiple_seed.py {command}--model r --path-to-results r"
    assert summary.result() == f"Result: {summary.score()}; plot: {plot}; evaluate the agent with: {evaluate}"


@pytest.mark.parametrize(
    ("scores", "told"),
    [
        ([7], "score 7.00, mean of the last 1 episode"),
        ([1] * 5 + [3] * 4, "score 1.89, mean of the last 9 episodes"),
        ([1] * 5 + [3] * 5, "score 2.00 up from 1.00, mean of the last 10 episodes"),
        ([9] * 50 + [-20] * 100 + [-20.1] * 100, "score -20.10 level with -20.00, mean of the last 100 episodes"),
        ([5] * 100 + [4] * 100, "score 4.00 down from 5.00, mean of the last 100 episodes"),
        ([2000] * 60 + [2400.5] * 60, "score 2,240.30 up from 2,000.00, mean of the last 100 episodes"),
    ],
)
def test_a_score_has_its_trend_once_there_are_ten_episodes(tmp_path: Path, scores: list[float], told: str) -> None:
    # Mutations: compare with the first episodes of the run; tell a trend from the second episode on.
    log = TrainingLog(tmp_path / "pong.csv")
    log.append([EpisodeRecord(episode=n, score_saber=score, end="game_over") for n, score in enumerate(scores)])
    assert Summary(options.parse([], "x", ""), Progress("run"), log, 4).score() == told

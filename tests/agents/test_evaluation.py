"""Evaluations of our own snapshots: what they take from them, and how they count."""

import dataclasses
import json
import re
import statistics
import threading
from pathlib import Path

import pytest
import torch

import args as options
from agents import snapshot
from agents.evaluation import network_args, other_rules, run_evaluation
from agents.registry import make_agent
from memory.chunk import Field
from tests.ground_truth.published_network import PublishedNetwork, snapshot_of


def test_what_belongs_to_a_policy_is_read_from_our_snapshots() -> None:
    trained = options.parse(
        "--num-quantile-samples 8 --replay-frequency 2 --action-repeat 3 --disable-SABER-mode".split(), "test", ""
    )
    content = snapshot_of(PublishedNetwork(4, 18, 5, embedding=3)) | {"settings": json.dumps(trained.shared)}
    evaluated = network_args(options.parse([], "test", ""), content)
    assert (evaluated.num_quantile_samples, evaluated.replay_frequency, evaluated.action_repeat) == (8, 2, 3)
    assert not evaluated.disable_SABER_mode, "the rules of an evaluation are those of its command"
    assert other_rules(evaluated, content) == ["--disable-SABER-mode is False, and was True in training"]
    assert other_rules(trained, content) == []


def test_game_time_counts_the_frames_of_the_environment_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--env gymnasium:CartPole-v1 --history-length 1 --hidden-size 8 --evaluation-episodes 3 --disable-cuda"
    args = options.parse(words.split(), "test", "")
    agent = make_agent(args, Field((4,), "float32"), 2, torch.device("cpu"), learns=True, seed=0)
    counts = {"T_actors": 0, "T_learner": 0, "settings": json.dumps(args.shared)}
    snapshot.save(tmp_path / "x.pth", agent, counts)
    run_evaluation(dataclasses.replace(args, model=tmp_path / "x.pth"), threading.Event())
    out = capsys.readouterr().out
    steps = statistics.mean(int(number) for number in re.findall(r"(\d+) steps", out))
    minutes = re.search(r"minutes of game time, mean +([\d.]+)", out)
    assert minutes and float(minutes[1]) == pytest.approx(steps / 3600, abs=0.005)

"""Weights that are kept at SABER's marks and at even intervals: when, once, and good for evaluation."""

import json
from pathlib import Path

import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.evaluation.settings import network_args
from rainbow_iqn_apex.programs.learner.kept_weights import KeptWeights, points_to_keep
from tests.specs import ATARI

MARKS = [2_500_000, 12_500_000, 25_000_000, 50_000_000]  # agent steps of four frames


def args_of(*more: str) -> options.Args:
    return options.parse(["--hidden-size", "5", "--precision", "float32", *more], "test", "")


@pytest.fixture(scope="module")
def agent() -> Agent:
    return make_agent(args_of(), ATARI, torch.device("cpu"), learns=True, seed=1)


def test_the_points_are_saber_s_marks_and_even_intervals() -> None:
    assert points_to_keep(args_of("--keep-checkpoints", "0"), 4) == MARKS
    assert points_to_keep(args_of(), 4) == sorted({*MARKS, *range(5_000_000, 50_000_001, 5_000_000)})
    assert points_to_keep(args_of("--T-max", "3000000", "--keep-checkpoints", "2"), 4) == [
        1_500_000,
        MARKS[0],
        3_000_000,
    ]
    few = args_of("--T-max", "100", "--learn-start", "40", "--keep-checkpoints", "3")
    assert points_to_keep(few, 4) == [66, 100], "before learning begins there is nothing to keep"
    assert points_to_keep(args_of("--keep-checkpoints", "0"), 3)[0] == 3_333_334, "the first step with all its frames"


def test_each_point_is_kept_once_and_a_resumed_run_goes_on(tmp_path: Path, agent: Agent) -> None:
    kept = KeptWeights(tmp_path, "pong", [100, 200, 230, 300], done=0)
    for steps in (0, 99, 103, 107, 199):
        kept.keep(steps, agent, {"T_learner": steps})
    assert names(tmp_path) == ["model_pong_100.pth"]
    assert snapshot.load(tmp_path / "model_pong_100.pth", "test")["T_learner"] == 103
    resumed = KeptWeights(tmp_path, "pong", [100, 200, 230, 300], done=199)
    resumed.keep(231, agent, {"T_learner": 231})
    assert names(tmp_path) == ["model_pong_100.pth", "model_pong_230.pth"], "weights are not kept under two names"
    resumed.keep(310, agent, {"T_learner": 310})
    assert names(tmp_path)[-1] == "model_pong_300.pth"
    assert snapshot.last_models(tmp_path, "pong") == [], "they are no checkpoints"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_full_disk_is_tried_again(tmp_path: Path, agent: Agent) -> None:
    kept = KeptWeights(tmp_path / "gone", "pong", [100], done=0)
    with pytest.raises(OSError, match="gone"):
        kept.keep(100, agent, {"T_learner": 100})
    (tmp_path / "gone").mkdir()
    kept.keep(104, agent, {"T_learner": 104})
    assert names(tmp_path / "gone") == ["model_pong_100.pth"]


def test_an_evaluation_and_another_run_take_them(
    tmp_path: Path, agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = args_of("--game", "pong", "--replay-frequency", "7")
    KeptWeights(tmp_path, "pong", [100], 0).keep(100, agent, {"settings": json.dumps(trained.shared)})
    path = tmp_path / "model_pong_100.pth"
    content = snapshot.load(path, "--model")
    assert content.keys() == {"settings", "model_state_dict"}
    args = network_args(options.parse(["--game", "pong", "--model", str(path)], "test", ""), content)
    assert (args.get("hidden_size"), args.replay_frequency) == (5, 7)
    other = make_agent(args_of(), ATARI, torch.device("cpu"), learns=True, seed=2)
    snapshot.restore_weights(other, content)
    assert capsys.readouterr().out == "Adam begins anew: the snapshot holds weights alone\n"
    assert snapshot.weights_hash(other.parts["model"]) == snapshot.weights_hash(agent.parts["model"])  # type: ignore[arg-type]

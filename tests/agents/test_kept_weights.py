"""Weights that are kept at SABER's marks and at even intervals: when, once, and good for evaluation."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.monitoring.report import EventLog
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.evaluation.settings import network_args
from rainbow_iqn_apex.programs.learner.checkpointer import (
    Checkpointer,
    DivergenceCheck,
    point_passed,
    points_to_keep,
)
from rainbow_iqn_apex.programs.learner.update_scheduler import Progress
from rainbow_iqn_apex.programs.learner.world import ALONE
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


@pytest.mark.parametrize(
    ("before", "steps", "passed"), [(0, 99, None), (0, 103, 100), (103, 199, None), (199, 231, 230), (0, 300, 300)]
)
def test_the_last_point_on_the_way_is_the_one_that_is_kept(before: int, steps: int, passed: int | None) -> None:
    assert point_passed([100, 200, 230, 300], before, steps) == passed


def checkpointer_of(folder: Path, agent: Agent, progress: Progress) -> Checkpointer:
    """Keeps weights of pong at the agent steps 100, 200 and 300."""
    words = "--game pong --T-max 300 --learn-start 4 --keep-checkpoints 3 --replay-frequency 7".split()
    run: Any = SimpleNamespace(
        args=args_of(*words, "--path-to-results", str(folder)), client=None, results=SimpleNamespace(action_repeat=4),
        progress=progress, limiter=SimpleNamespace(synchronize=True, crews=()), world=ALONE,
    )  # fmt: skip
    of_none: Any = None
    return Checkpointer(run, agent, of_none, of_none, None, DivergenceCheck(agent.model), EventLog())


def test_each_point_is_kept_once_and_a_resumed_run_goes_on(tmp_path: Path, agent: Agent) -> None:
    progress = Progress("a1")
    kept = checkpointer_of(tmp_path, agent, progress)
    for progress.T_learner in (0, 99, 103, 107, 199):
        kept.keep_weights()
    assert names(tmp_path) == ["model_pong_100.pth"]
    assert snapshot.load(tmp_path / "model_pong_100.pth", "test")["T_learner"] == 103
    resumed = checkpointer_of(tmp_path, agent, progress)
    progress.T_learner = 304
    resumed.keep_weights()
    assert names(tmp_path) == ["model_pong_100.pth", "model_pong_300.pth"], "weights are not kept under two names"
    assert snapshot.last_models(tmp_path, "pong") == [], "they are no checkpoints"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_full_disk_is_tried_again(tmp_path: Path, agent: Agent) -> None:
    progress = Progress("a1")
    kept = checkpointer_of(tmp_path / "gone", agent, progress)
    progress.T_learner = 100
    with pytest.raises(OSError, match="gone"):
        kept.keep_weights()
    (tmp_path / "gone").mkdir()
    progress.T_learner = 104
    kept.keep_weights()
    assert names(tmp_path / "gone") == ["model_pong_100.pth"]


def test_an_evaluation_and_another_run_take_them(
    tmp_path: Path, agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = Progress("a1")
    kept = checkpointer_of(tmp_path, agent, progress)
    progress.T_learner = 100
    kept.keep_weights()
    path = tmp_path / "model_pong_100.pth"
    content = snapshot.load(path, "--model")
    assert "settings" in content and {name for name in content if name.endswith("_state_dict")} == {"model_state_dict"}
    args = network_args(options.parse(["--game", "pong", "--model", str(path)], "test", ""), content)
    assert (args.get("hidden_size"), args.replay_frequency) == (5, 7)
    other = make_agent(args_of(), ATARI, torch.device("cpu"), learns=True, seed=2)
    snapshot.restore_weights(other, content)
    assert capsys.readouterr().out == "Adam begins anew: the snapshot holds weights alone\n"
    assert snapshot.weights_hash(other.parts["model"]) == snapshot.weights_hash(agent.parts["model"])  # type: ignore[arg-type]

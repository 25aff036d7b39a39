"""Agents with replay and a CUDA device: one operation after the other, and as a recorded graph."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.interface import Agent, Update
from rainbow_iqn_apex.agents.q_learning.agent import QLearningAgent
from rainbow_iqn_apex.common.loop_clock import LoopClock
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.memory.rows import StepType
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.learner.trainers import PARTS, EagerTrainer, GraphTrainer, make_trainer
from tests.agents.sequences import play
from tests.agents.test_agents import ENVIRONMENT, RAINBOWS, agent_of, arguments
from tests.agents.test_gpu_trace import RECORDED, agent_in, tensors_in
from tests.memory.valid import check_valid
from tests.programs.test_trainers import turns

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def learner(name: str, place: str) -> tuple[QLearningAgent, Replay]:
    agent = make_agent(arguments(name), ENVIRONMENT, torch.device("cuda", 0), learns=True, seed=3)
    assert isinstance(agent, QLearningAgent)
    device = torch.device(place, 0) if place == "cuda" else torch.device("cpu")
    replay = Replay(agent.spec, ENVIRONMENT, 4000, torch.Generator(device).manual_seed(1), device)
    for number, chunk in enumerate(play(agent_of(name), 700).chunks):
        replay.add(ChunkId(0, number), chunk)
    return agent, replay


@pytest.mark.parametrize("place", ["cpu", "cuda"])
@pytest.mark.parametrize("name", RAINBOWS)
def test_updates_on_the_gpu(name: str, place: str) -> None:
    agent, replay = learner(name, place)
    updates = make_trainer(agent, replay, 10, torch.device("cuda", 0))
    assert isinstance(updates, GraphTrainer if place == "cuda" else EagerTrainer)
    losses = [metrics["loss"].item() for metrics in updates(turns([0.4] * 400))]
    check_valid(replay)
    assert sum(losses[-100:]) < sum(losses[:100])  # Rainbow's loss falls slowly: 2.421 and 2.402, each draw +- 0.03
    assert len(set(losses)) > 380, "every update draws anew"


@pytest.mark.parametrize("name", RAINBOWS)
def test_a_graph_sees_new_chunks_and_never_waits_for_the_gpu(name: str) -> None:
    agent, replay = learner(name, "cuda")
    updates = make_trainer(agent, replay, 10, torch.device("cuda", 0))
    updates(turns([0.4] * 6))
    with no_waiting():
        updates(turns([0.5] * 6))
    for number, chunk in enumerate(play(agent_of(name), 700).chunks):
        replay.add(ChunkId(1, number), chunk)
    before = replay.checkpoint().priorities[-10:].clone()
    updates(turns([0.6] * 50))
    check_valid(replay)
    after = replay.checkpoint().priorities[-10:]
    assert after.isfinite().all()
    assert not torch.equal(after, before), "they were sampled"


@pytest.mark.parametrize("name", RAINBOWS)
def test_a_graph_does_what_the_operations_do(name: str) -> None:
    """With the same seeds; beta is another one after the recording, so one that was recorded with it would show."""
    betas = [0.4] * 5 + [0.9] * 15
    found = []
    for is_recorded in (False, True):
        agent, replay = learner(name, "cuda")
        device = torch.device("cuda", 0)
        eager = EagerTrainer(agent, replay, 10, device, LoopClock(*PARTS))
        updates = make_trainer(agent, replay, 10, device) if is_recorded else eager
        losses = [metrics["loss"].item() for beta in betas for metrics in updates(turns([beta]))]
        found.append((torch.tensor(losses), replay.checkpoint().priorities))
    for eager, graph in zip(*found, strict=True):
        torch.testing.assert_close(graph, eager, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("name", RAINBOWS)
def test_a_pass_that_is_begun_an_update_ahead_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Learners that make updates together record no graph, and begin with the next batch's target pass."""
    device, found = torch.device("cuda", 0), []
    for is_ahead in (True, False):
        agent, replay = learner(name, "cuda")
        if not is_ahead:
            monkeypatch.setattr(agent, "expect", lambda *_: None)
        trainer = EagerTrainer(agent, replay, 10, device, LoopClock(*PARTS))
        found.append(torch.tensor([metrics["loss"].item() for metrics in trainer(turns([0.4] * 30))]))
    torch.testing.assert_close(*found, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", RECORDED)
def test_every_recorded_update_does_what_its_operations_do(
    case: str, precision: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under bfloat16 a torso's products are those of `torch.autocast`, within the recording."""
    agent, replay = on_gpu(case, precision)
    trainer = make_trainer(agent, replay, 8, torch.device("cuda", 0))
    assert isinstance(trainer, GraphTrainer)
    metrics = trainer(turns([0.4] * 30))
    assert capsys.readouterr().out == "", "the trainer's own check has found a difference"
    assert all(value.isfinite() for made in metrics for value in made.values())
    losses = {made["loss"].item() for made in metrics}
    assert len(losses) > 25, "every update draws anew"


def test_an_update_that_cannot_be_recorded_goes_on_without(capsys: pytest.CaptureFixture[str]) -> None:
    agent, replay = on_gpu("rainbow_iqn", "bfloat16")
    right = agent.update

    def looks(batch: Batch, progress: Any) -> Update:
        made = right(batch, progress)
        assert made.metrics["loss"].item() > 0
        return made

    agent.update = looks  # type: ignore[method-assign]
    trainer = make_trainer(agent, replay, 8, torch.device("cuda", 0))
    here = torch.cuda.current_stream()
    losses = {made["loss"].item() for made in trainer(turns([0.4] * 20))}
    assert len(losses) > 15
    assert torch.cuda.current_stream() == here
    assert torch.rand(3, device="cuda").isfinite().all(), "PyTorch's own generator draws, too"
    line = capsys.readouterr().out
    assert line.startswith("The update as one CUDA graph fails: ") and line.count("\n") == 1


@pytest.mark.parametrize("case", RECORDED)
def test_a_snapshot_goes_on_where_it_was_written(case: str, tmp_path: Path) -> None:
    agent, replay = on_gpu(case, "float32")
    make_trainer(agent, replay, 8, torch.device("cuda", 0))(turns([0.4] * 6))
    snapshot.save(tmp_path / "x.pth", agent, {})
    other, _ = on_gpu(case, "float32")
    snapshot.restore(other, snapshot.load(tmp_path / "x.pth", "--model"))
    for name, part in agent.parts.items():
        states = [tensors_in(each.state_dict()) for each in (part, other.parts[name])]
        assert states[0]
        torch.testing.assert_close(*states, msg=name)


def on_gpu(case: str, precision: str) -> tuple[Agent, Replay]:
    """Make an agent of a traced case on the GPU, with a replay of chunks of random numbers."""
    device, (environment, settings) = torch.device("cuda", 0), RECORDED[case]
    name = agent_in(case)
    args = options.parse(["--agent", name, "--precision", precision, "--learn-start", "60", *settings.split()], "", "")
    agent = make_agent(args, environment, device, learns=True, seed=3)
    replay = Replay(agent.spec, environment, 400, torch.Generator(device).manual_seed(1), device)
    rng = np.random.default_rng(0)
    for number in range(replay.slots):
        rows = {
            key: rng.integers(0, 2, (agent.spec.window, *field.shape)).astype(field.dtype)
            for key, field in agent.spec.row_fields(environment).items()
        }
        rows["step_type"][:] = StepType.MID
        state = {key: np.zeros(field.shape, field.dtype) for key, field in agent.spec.state}
        priorities = rng.random(agent.spec.samples).astype(np.float32) + 0.1
        replay.add(ChunkId(0, number), Chunk(0, 0, rows, state, priorities if agent.spec.prioritised else None))
    return agent, replay


@contextmanager
def no_waiting() -> Iterator[None]:
    """An operation in which the CPU waits for the GPU raises an exception."""
    with warnings.catch_warnings(action="ignore"):  # that this is a prototype
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")

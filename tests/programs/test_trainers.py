"""How updates are made, one operation after the other."""

from functools import cache
from typing import Any, cast

import pytest
import torch

from rainbow_iqn_apex.agents.interface import Update
from rainbow_iqn_apex.agents.q_learning.agent import QLearningAgent
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.chunk import Chunk
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.memory.ring import Ring
from rainbow_iqn_apex.programs.learner.trainers import EagerTrainer, Turn, make_trainer
from tests.agents.sequences import play, replay_with
from tests.agents.test_agents import ENVIRONMENT, agent_of

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")


@cache
def chunks_of(name: str) -> list[Chunk]:
    return play(agent_of(name), 200).chunks


def learning(name: str, *more: str) -> tuple[QLearningAgent, Replay]:
    """Make an agent and its replay, the same each time."""
    agent = agent_of(name, *more)
    return agent, replay_with(agent, ENVIRONMENT, chunks_of(name))


def turns(betas: list[float]) -> list[Turn]:
    """Updates of a new run with the default replay frequency."""
    return [Turn(beta, 4 * number) for number, beta in enumerate(betas, start=1)]


def test_an_update_on_the_cpu_copies_no_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: move each batch to the device where it is already.
    agent, replay = learning("rainbow_iqn")
    copied: list[str] = []
    gather = Ring.gather

    def noting(ring: Ring, name: str, places: torch.Tensor) -> torch.Tensor:
        copied.append(name)
        return gather(ring, name, places)

    monkeypatch.setattr(Ring, "gather", noting)
    make_trainer(agent, replay, 10, CPU)(turns([0.4, 0.5]))
    assert copied == []
    assert len(replay.sample(10, 0.4).obs) == agent.spec.sample_window and copied == ["obs"]


@pytest.mark.parametrize(
    "wrong", [None, {}, Update(None, {"loss": cast(torch.Tensor, 0.5)}), Update(None, {"loss": torch.ones(3)})]
)
def test_what_an_update_returns_is_named(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: leave it to what the metrics are used for.
    agent, replay = learning("rainbow_iqn")
    monkeypatch.setattr(agent, "update", lambda *_: wrong)
    with pytest.raises(UserError, match=r"^--agent: expected `update` to return Update\(priorities, "):
        make_trainer(agent, replay, 10, CPU)(turns([0.4]))


@pytest.mark.parametrize("words", [["rainbow"], ["rainbow_iqn"], ["rainbow_iqn", "--munchausen", "0.9"]], ids=" ".join)
def test_eager_updates_draw_ahead_learn_and_count(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutations: begin with the next targets though the target network is renewed first, or
    # before this update's draws.
    monkeypatch.setattr("rainbow_iqn_apex.agents.devices._cores", lambda: torch.get_num_threads() + 1)
    (agent, replay), (twin, same) = learning(*words), learning(*words)
    betas = [0.4, 0.5, 0.6, 0.7, 0.8]
    updates = make_trainer(agent, replay, 10, CPU)
    assert isinstance(updates, EagerTrainer)
    losses = [float(metrics["loss"]) for metrics in updates(turns(betas))]
    wanted = []
    for turn, batch in [(turn, same.sample(10, turn.progress)) for turn in turns(betas)]:
        update = twin.update(batch)
        twin.count_update(turn.step)
        same.learned(batch, update.priorities)
        wanted.append(float(update.metrics["loss"]))
    assert losses == wanted
    targets = dict(twin.target.named_parameters())  # the online network's of the third update, as 12 agent steps ago
    assert all(torch.equal(value, targets[name]) for name, value in agent.target.named_parameters())
    assert not any(torch.equal(value, targets[name]) for name, value in agent.network.named_parameters())
    assert torch.equal(replay.checkpoint().priorities, same.checkpoint().priorities)

"""How updates are made; on a GPU they are recorded, so nothing in them may look at values."""

import copy
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rainbow_iqn_apex.memory.ring import Ring
from rainbow_iqn_apex.programs.learner.eager_trainer import EagerTrainer
from rainbow_iqn_apex.programs.learner.trainer import make_trainer
from rainbow_iqn_apex.programs.learner.trainer_base import Turn
from tests.agents.test_agents import RAINBOWS, agent_of, replay_of

CPU = torch.device("cpu")
every_agent = pytest.mark.parametrize("name", RAINBOWS)
# What makes the host wait for a GPU, or gives tensors whose sizes depend on values.
WAITING = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "aten.equal", "unique", "bincount", "item")


class Refuses(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Fails at every operation that would wait for a GPU."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert not any(word in str(func) for word in WAITING), f"{func} looks at values"
        masks = [index for index in args[1] if index is not None] if "index.Tensor" in str(func) else []
        assert not any(mask.dtype == torch.bool for mask in masks), "a boolean index: its size depends on values"
        return func(*args, **(kwargs or {}))


def turns(betas: list[float]) -> list[Turn]:
    """Updates of a new run with the default replay frequency."""
    return [Turn(beta, 4 * number) for number, beta in enumerate(betas, start=1)]


@pytest.mark.usefixtures("memory_of_a_gpu")
@every_agent
def test_an_update_never_looks_at_values(name: str) -> None:
    agent = agent_of(name, "--max-gradient-norm", "10")
    replay = replay_of(agent)
    updates = make_trainer(agent, replay, 10, CPU)
    updates(turns([0.4]))  # what is made once
    with Refuses():
        batch = replay.sample(10, torch.tensor(0.5))
        replay.learned(batch, agent.update(batch).priorities)


@every_agent
def test_an_update_on_the_cpu_copies_no_windows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: move each batch to the device where it is already.
    agent = agent_of(name)
    replay = replay_of(agent)
    copied: list[str] = []
    gather = Ring.gather

    def noting(ring: Ring, name: str, places: torch.Tensor) -> torch.Tensor:
        copied.append(name)
        return gather(ring, name, places)

    monkeypatch.setattr(Ring, "gather", noting)
    make_trainer(agent, replay, 10, CPU)(turns([0.4, 0.5]))
    assert copied == []
    assert len(replay.sample(10, 0.4).obs) == agent.spec.sample_window and copied == ["obs"]


@pytest.mark.usefixtures("memory_of_a_gpu")
def test_the_check_sees_an_agent_that_looks() -> None:
    agent = agent_of("rainbow")
    batch = replay_of(agent).sample(10, 0.5)
    assert batch.weights is not None
    with pytest.raises(AssertionError, match="looks at values"), Refuses():
        assert agent.update(batch).metrics["loss"].item() > 0
    with pytest.raises(AssertionError, match="boolean index"), Refuses():
        batch.weights[batch.weights > 0.5].sum()


@pytest.mark.parametrize("words", [["rainbow"], ["rainbow_iqn"], ["rainbow_iqn", "--munchausen", "0.9"]], ids=" ".join)
def test_eager_updates_draw_ahead_learn_and_count(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutations: begin with the next targets though the target network is renewed first, or
    # before this update's draws.
    monkeypatch.setattr("rainbow_iqn_apex.agents.beside._cores", lambda: torch.get_num_threads() + 1)
    agent = agent_of(*words)
    replay = replay_of(agent)
    twin, same = agent_of(*words), replay_of(agent_of(*words))
    for key, part in twin.parts.items():
        part.load_state_dict(copy.deepcopy(agent.parts[key].state_dict()))
    same.generator.set_state(replay.generator.get_state())
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

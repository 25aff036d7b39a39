"""What the learner checks of agents that other packages bring, and how it begins one from a snapshot."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.agents.networks.network import Network
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.learner.program import check_of_others
from tests.agents.sequences import agent_of


class Counting:
    """A part whose state is whatever its author has put there."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any], /) -> Any:
        self.state = state


class Linear(Network):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)


class Extra(nn.Module):
    def get_extra_state(self) -> dict[str, int]:
        return {"count": 1}

    def set_extra_state(self, state: dict[str, int]) -> None: ...


def check(agent: Agent) -> None:
    check_of_others(replace(options.Args(), agent="mine:Agent"), agent)


@pytest.mark.parametrize(
    ("buffer", "told"),
    [
        (torch.ones(2, dtype=torch.bool), "mask is of bool, which cannot be sent to actors"),
        (torch.ones(2, dtype=torch.float16), "mask is of float16, which cannot be sent"),
        (torch.tensor([0, -torch.inf]), "mask has values that are not finite"),
    ],
)
def test_buffers_that_could_not_travel_are_told_at_the_beginning(buffer: torch.Tensor, told: str) -> None:
    # Mutation: no check: a traceback at the first weights, or snapshots that cannot be opened.
    for persistent in (True, False):
        agent = agent_of("impala")
        agent.network.register_buffer("mask", buffer, persistent=persistent)
        if persistent:
            with pytest.raises(UserError, match=f"^--agent: the network's {told}.*persistent=False$"):
                check(agent)
        else:
            check(agent)


def test_a_network_of_more_than_tensors_is_refused() -> None:
    agent = agent_of("impala")
    agent.network.extra = Extra()
    with pytest.raises(UserError, match=r"^--agent: the network's extra\._extra_state is not a tensor of numbers"):
        check(agent)


@pytest.mark.parametrize("state", [{"seen": np.zeros(2)}, {"mean": np.float64(1)}, {"rule": lambda: 0}])
def test_a_state_that_could_not_be_read_again_is_told_at_the_beginning(state: dict[str, Any]) -> None:
    agent = agent_of("impala")
    agent.parts["mine"] = Counting({"count": 3, "seen": [1.5, None, torch.zeros(2)]})
    check(agent)
    agent.parts["mine"] = Counting(state)
    with pytest.raises(UserError, match=r"^--agent: no snapshot could be read again, because of the part 'mine'"):
        check(agent)


def test_weights_go_into_networks_like_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Mutation: into all that derive from Network: a critic of another size refused each snapshot of its own agent.
    saved, agent = agent_of("impala"), agent_of("impala", seed=5)
    for each in (saved, agent):
        each.parts |= {name: Linear(4, 1) for name in ("critic", "learned")} | {"like": agent_of("impala").network}
    snapshot.save(tmp_path / "x.pth", saved, {"T_actors": 1, "T_learner": 1})
    critic = agent.parts["critic"].layer.weight.clone()
    agent.learned = frozenset({"learned"})
    snapshot.restore_weights(agent, snapshot.load(tmp_path / "x.pth", "--model"))
    for network in (agent.network, agent.parts["like"]):
        torch.testing.assert_close(network.state_dict(), saved.network.state_dict(), rtol=0, atol=0)
    assert torch.equal(agent.parts["critic"].layer.weight, critic)
    assert torch.equal(agent.parts["learned"].layer.weight, saved.parts["learned"].layer.weight)
    assert "The network 'critic' begins anew: the agent's `learned` does not name it" in capsys.readouterr().out


def test_moments_are_those_of_the_weights_whatever_the_order_of_an_optimisers_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Mutation: compare sets of weights: "Adam begins anew, without the snapshot's moments".
    saved, agent = agent_of("impala"), agent_of("impala", seed=5)
    for each in (saved, agent):
        weights = list(each.network.parameters())
        each.parts["optimiser"] = torch.optim.Adam([{"params": weights[::-2]}, {"params": weights[-2::-2]}])
        sum(weight.sum() * number for number, weight in enumerate(weights)).backward()
    saved.parts["optimiser"].step()
    snapshot.save(tmp_path / "x.pth", saved, {"T_actors": 1, "T_learner": 1})
    snapshot.restore_weights(agent, snapshot.load(tmp_path / "x.pth", "--model"))
    assert "Adam goes on with the snapshot's moments" in capsys.readouterr().out
    for one, other in zip(agent.network.parameters(), saved.network.parameters(), strict=True):
        moments = [each.parts["optimiser"].state[weight]["exp_avg"] for each, weight in ((agent, one), (saved, other))]
        assert torch.equal(*moments)

"""Every agent that is restored from the states of its parts learns on exactly, at the rate of its options."""

import copy
from typing import Any

import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.registry import AGENTS
from rainbow_iqn_apex.memory.batch import Batch
from tests.agents.test_ranks import CASES, agent_of, batch_of

pytestmark = pytest.mark.usefixtures("one_thread")


def learn(agent: Any, batch: Batch, step: int) -> dict[str, torch.Tensor]:
    metrics: dict[str, torch.Tensor] = agent.update(batch, step / 9).metrics
    agent.count_update(step)
    return metrics


@pytest.mark.parametrize("name", CASES)
def test_a_restored_agent_learns_on_exactly(name: str) -> None:
    # Mutation: leave statistics, multipliers, the reference, critics or a target network out of `parts`.
    words, environment, _ = CASES[name]
    agent, other = agent_of(words, environment), agent_of(words, environment, seed=77)
    batch = batch_of(agent, environment, 12)
    for step in range(4):
        learn(agent, batch, step)
    for key, part in other.parts.items():
        part.load_state_dict(copy.deepcopy(agent.parts[key].state_dict()))
    for step in range(4, 8):
        assert learn(agent, batch, step) == learn(other, batch, step)
    for key, part in agent.parts.items():
        torch.testing.assert_close(part.state_dict(), other.parts[key].state_dict(), rtol=0, atol=0, msg=key)


@pytest.mark.parametrize("name", CASES)
def test_the_learning_rate_falls_with_the_share_of_learning_that_is_done_if_it_is_to(name: str) -> None:
    # Mutations: no call of `anneal`; the share that is done in the place of the one that is left.
    words, environment, _ = CASES[name]
    own = options.parse(["--agent", *words.split()], "test", "").own
    (rate,) = (value for option, value in vars(own).items() if option.startswith("lr_"))
    choices = {" --rate-decay False": 1, " --rate-decay True": 0.25}
    for more, share in (choices if hasattr(own, "rate_decay") else {"": 0.25 if own.rate_falls else 1}).items():
        agent = agent_of(words + more, environment)
        agent.update(batch_of(agent, environment, 12), 0.75)
        (group,) = agent.parts["optimiser"].state_dict()["param_groups"]
        assert float(group["lr"]) == pytest.approx(share * rate)


def test_every_agent_is_here() -> None:
    assert {words.split()[0] for words, *_ in CASES.values()} == AGENTS.keys()

"""--reward-scale changes the unit of rewards for learning, for every agent, where it acts as where it learns."""

from typing import Any

import pytest
import torch

from rainbow_iqn_apex.agents.registry import AGENTS
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.memory.rows import Row
from tests.agents import sequences
from tests.agents.sequences import random_row
from tests.agents.test_ranks import CASES, agent_of, batch_of
from tests.agents.test_sequences import weights_of

pytestmark = pytest.mark.usefixtures("one_thread")
# What is normalised has no unit before it is scaled.
SCALED = {name: case for name, case in CASES.items() if "--normalise-rewards True" not in case[0]}
UNSCALED = {"reinforce"}
NOT_LEARNED_FROM = {"reward", "extras.return"}  # rows that are in the environment's unit


def learned(
    words: str, environment: EnvironmentSpec, unit: float, scale: float, patch: pytest.MonkeyPatch
) -> dict[str, torch.Tensor]:
    """Return what was played with rewards in this unit, and the weights after an update with it."""

    def row(*given: Any) -> Row:
        drawn = random_row(*given)
        return drawn._replace(reward=unit * drawn.reward)

    patch.setattr(sequences, "random_row", row)
    agent = agent_of(f"{words} --reward-clip 0.5 --reward-scale {scale}", environment)
    batch = batch_of(agent, environment, 12)
    agent.update(batch, 0.5)
    played = {name: rows for name, rows in batch.rows.items() if name not in NOT_LEARNED_FROM}
    return played | dict(batch.state) | weights_of(agent)


def test_every_agent_is_here() -> None:
    assert {words.split()[0] for words, _, _ in SCALED.values()} - UNSCALED == {*AGENTS} - UNSCALED
    assert {name for name, entry in AGENTS.items() if "reward_scale" in entry.options.UNUSED} == UNSCALED


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, case in SCALED.items() if case[0].split()[0] not in UNSCALED])
def test_rewards_of_another_unit_are_learned_from_alike(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A power of two changes no digit. Mutations: the clip before the scale; no scale where an LSTM sees the reward.
    words, environment, _ = SCALED[name]
    wanted = learned(words, environment, 1, 1, monkeypatch)
    found = learned(words, environment, 4, 0.25, monkeypatch)
    assert found.keys() == wanted.keys()
    assert [key for key in wanted if not torch.equal(found[key], wanted[key])] == []
    other = learned(words, environment, 4, 1, monkeypatch)
    assert any(not torch.equal(other[key], wanted[key]) for key in wanted)

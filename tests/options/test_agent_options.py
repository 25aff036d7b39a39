"""What an agent's options must be marked as, for every agent: whoever adds one may forget it."""

import dataclasses
from functools import cache
from typing import Any

import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.agents.registry import AGENTS
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.options.agent_options import LearningOptions
from rainbow_iqn_apex.programs.agent import make_agent
from tests.specs import ATARI, CARTPOLE

SMALL = {
    "hidden_size": 8, "lstm_size": 6, "unroll_length": 5, "sequence_length": 8, "sequence_period": 4, "burn_in": 3,
    "multi_step": 2, "atoms": 7, "quantile_embedding_dim": 5, "history_length": 2,
    "replay_mix": "queue:0.5,elite:0.5:100",
}  # fmt: skip
# One agent of each set of options: BTR has Rainbow-IQN's, and the on-policy family PPO's.
DISTINCT = {frozenset(f.name for f in dataclasses.fields(AGENTS[name].options)): name for name in reversed(AGENTS)}
CASES = [
    (agent, field)
    for agent, entry in AGENTS.items()
    if agent in DISTINCT.values()
    for group in (LearningOptions, entry.options)
    for field in dataclasses.fields(group)
]


def settings_of(agent: str) -> options.Args:
    args = options.parse(["--agent", agent, "--disable-cuda", "--precision", "float32"], "test", "")
    known = {name: value for name, value in SMALL.items() if args.get(name) is not None}
    return args.replace(**known)


def other_values(field: dataclasses.Field[Any], value: Any) -> list[Any]:
    """Other values of an option, within its bounds."""
    if choices := field.metadata["bounds"].choices:
        return [choice for choice in choices if choice not in (value, "auto")]
    if isinstance(value, bool):
        return [not value]
    if field.name == "replay_mix":
        return ["", "queue:0.5,uniform:0.5:100"]
    found = [value + 1, value - 1, 0] if isinstance(value, int) else [value / 2, value * 1.5, value + 0.5, 0.0]
    return [other for other in found if other != value and not field.metadata["bounds"].error(other)]


def built(args: options.Args, environment: EnvironmentSpec) -> Agent:
    return make_agent(args, environment, torch.device("cpu"), learns=False, seed=1)


@cache
def plain(agent: str, environment: EnvironmentSpec) -> Agent:
    """The agent before an option of it is changed."""
    return built(settings_of(agent), environment)


def shapes(agent: Agent) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in agent.model.published().items()}


@pytest.mark.parametrize(("agent", "field"), CASES, ids=lambda value: getattr(value, "name", value))
def test_options_that_change_chunks_or_weights_are_shared(agent: str, field: dataclasses.Field[Any]) -> None:
    # Mutations: any agent's unroll, sequence or hidden size that is not shared; IMPALA's hidden size without `policy`.
    args = settings_of(agent)
    tried = other_values(field, args.get(field.name))
    assert tried
    for environment in (CARTPOLE,) if agent == "reinforce" else (ATARI, CARTPOLE):
        before = plain(agent, environment)
        for value in tried:
            changed = args.replace(**{field.name: value})
            if changed.own.errors() or field.name == "hindsight":  # for environments with goals: see test_hindsight
                continue
            after = built(changed, environment)
            if after.spec != before.spec or shapes(after) != shapes(before):
                assert field.metadata["shared"], f"{value} makes other chunks or weights"
            if shapes(after) != shapes(before):
                told = after.sizes_of(after.model.published())
                assert field.metadata["policy"] or told.get(field.name) == value, "an evaluation could not load them"


@pytest.mark.parametrize("agent", AGENTS)
def test_an_agent_with_a_queue_waits_for_its_rows(agent: str) -> None:
    made = built(settings_of(agent), CARTPOLE)
    assert made.buffer == "replay" or AGENTS[agent].options.WAITS_FOR_ROWS

"""What agents show of their thoughts: it is what they act by, and showing it changes nothing that they do."""

from types import MethodType

import numpy as np
import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.agents.on_policy.agent import OnPolicy
from rainbow_iqn_apex.agents.policy import Inspection
from rainbow_iqn_apex.agents.r2d2.agent import unscale
from rainbow_iqn_apex.agents.reinforce.agent import Reinforce
from rainbow_iqn_apex.environments.vector import VectorEnvironment
from rainbow_iqn_apex.memory.environment_spec import (
    ActionSpec,
    Box,
    Discrete,
    EnvironmentSpec,
    Field,
    MultiDiscrete,
    Part,
)
from rainbow_iqn_apex.memory.messages import encode_message
from rainbow_iqn_apex.memory.rows import Array, Arrays, Rows
from rainbow_iqn_apex.monitoring.view import decode, encode
from rainbow_iqn_apex.programs.actor.rollout import ResumePoint, Rollout, inspect, make_view
from rainbow_iqn_apex.programs.agent import make_agent
from tests.chain.environment import ChainEnvironment
from tests.small import FAMILIES, SHORT_CHAIN, TINY

AGENTS = {
    "rainbow_iqn": [*SHORT_CHAIN, *TINY],
    "rainbow": [*SHORT_CHAIN, *TINY, *"--agent rainbow --atoms 9".split()],
    **FAMILIES,
}
KINDS = {
    "rainbow_iqn": "quantiles", "btr": "quantiles", "rainbow": "atoms",
    "impala": "probabilities", "impala-lstm": "probabilities",
    "impala-mix": "probabilities", "impala-elite": "probabilities",
    "reinforce": "probabilities", "r2d2": "values", "pqn": "values", "ppo": "probabilities", "vmpo": "probabilities",
    "vmpo-lstm": "probabilities",
    "sac": "probabilities", "sac-lstm": "probabilities",
}  # fmt: skip
# Agents whose actors have the network of the value: all with probabilities but SAC.
VALUED = {name for name, kind in KINDS.items() if kind == "probabilities"} - {"sac", "sac-lstm"}


def test_reinforce_sees_bytes_as_fractions() -> None:
    # Mutation: as they are, up to 255: tanh is flat there.
    args = options.parse("--env gymnasium:CartPole-v1 --agent reinforce".split(), "test", "")
    spec = EnvironmentSpec(Field((4,), "uint8"), Discrete(2))
    agent = make_agent(args, spec, torch.device("cpu"), learns=False, seed=1)
    assert isinstance(agent, Reinforce)
    assert agent._inputs(torch.tensor([[0, 51, 102, 255]], dtype=torch.uint8)).tolist() == [
        pytest.approx([0, 0.2, 0.4, 1])
    ]


def rollout_of(words: list[str]) -> Rollout:
    args = options.parse([*words, *"--nb-env-per-actor 3 --id-actor 0 --learn-start 5".split()], "test", "")
    environments = [ChainEnvironment(seed) for seed in range(3)]
    agent = make_agent(args, environments[0].spec, torch.device("cpu"), learns=False, seed=1)
    rollout = Rollout(args, agent, VectorEnvironment(list(environments)))
    rollout.load(agent.model.published(), 0)
    return rollout


def seen_by(rollout: Rollout) -> tuple[Array, Inspection | None]:
    (group,) = rollout._groups
    return inspect(rollout.policy, group.rows, group.state)


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_that_is_watched_plays_as_one_that_is_not(name: str) -> None:
    # Mutation: draw the taus of `RainbowIqn.inspection` by `sample_taus`, without `restore_random_state` in `inspect`.
    watched, alone = rollout_of(AGENTS[name]), rollout_of(AGENTS[name])
    for step in range(12):
        first, second = (rollout.play(10 * step, 10 * step + 3) for rollout in (watched, alone))
        assert [*map(encode_message, first)] == [*map(encode_message, second)]
        assert watched.snapshot(ResumePoint(0, step)) == alone.snapshot(ResumePoint(0, step))
        observation, thought = seen_by(watched)
        assert thought is not None and thought.kind == KINDS[name]
        assert isinstance(thought.value, float) == (name in VALUED)
        assert np.array_equal(observation, watched._groups[0].rows.obs[0])
        check(thought, 3)


def check(thought: Inspection, count: int) -> None:
    assert thought.actions.shape == (count,) and np.isfinite(thought.actions).all()
    if thought.kind == "probabilities":
        assert thought.actions.sum() == pytest.approx(1, abs=1e-5)
    if thought.kind in ("quantiles", "atoms"):
        assert thought.curves is not None and thought.places is not None
        assert thought.curves.shape == (count, len(thought.places))
        means = thought.curves.mean(1) if thought.kind == "quantiles" else thought.curves @ thought.places
        assert means == pytest.approx(thought.actions, abs=1e-4)


BOX, CHOICES = Box(3), MultiDiscrete((2, 4, 3))


def policy_over(action: ActionSpec, words: str) -> tuple[OnPolicy, Tensor, Inspection]:
    """Return an agent over observations of 5 numbers, the parameters [P] of its policy, and what it tells of it."""
    spec = EnvironmentSpec(Field((5,), "float32"), action)
    args = options.parse(["--env", "gymnasium:Pendulum-v1", *words.split(), "--disable-cuda"], "test", "")
    agent = make_agent(args, spec, torch.device("cpu"), learns=False, seed=1)
    assert isinstance(agent, OnPolicy)
    with torch.no_grad():
        for parameter in agent.network.policy.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
    obs = np.linspace(-1, 1, 5, dtype=np.float32)[None]
    rows = Rows(obs, np.array([0], np.uint8), np.zeros(1, np.float32), np.ones(1, np.float32))
    output, _ = agent.act(rows, {}, None)
    thought = agent.inspect(rows, {})
    assert isinstance(thought.value, float)
    if thought.kind == "intervals":
        assert thought.actions == pytest.approx(output.actions[0])
    return agent, torch.tensor(output.extras["parameters"][0]), thought


@pytest.mark.parametrize("box", ["tanh-normal", "clipped-normal"])
def test_intervals_are_those_of_the_actions_that_are_drawn(box: str) -> None:
    # Mutation: return quantiles of the raw samples.
    agent, parameters, thought = policy_over(BOX, f"--agent ppo --box-policy {box}")
    assert thought.kind == "intervals" and thought.places is not None and thought.curves is not None
    assert thought.curves.shape == (3, len(thought.places))
    assert (np.diff(thought.curves, axis=1) >= 0).all() and np.abs(thought.curves).max() <= 1
    policy = agent._policy.distribution(parameters.expand(200_000, -1))
    drawn = policy.to_action(policy.sample(torch.Generator().manual_seed(3))).numpy()  # [N, K]
    assert thought.curves == pytest.approx(np.quantile(drawn, thought.places, axis=0).T, abs=0.02)


def test_probabilities_of_each_choice_stand_behind_one_another() -> None:
    # Mutation: one softmax over all of them.
    _, parameters, thought = policy_over(CHOICES, "--agent ppo")
    assert thought.kind == "choices" and thought.places is not None
    assert thought.places.tolist() == [2, 4, 3]
    expected = torch.cat([part.softmax(0) for part in torch.split(parameters, [2, 4, 3])])
    assert thought.actions == pytest.approx(expected.numpy(), abs=1e-6)


def test_a_single_choice_has_probabilities() -> None:
    _, parameters, thought = policy_over(Discrete(4), "--agent ppo")
    assert thought.kind == "probabilities"
    assert thought.actions == pytest.approx(parameters.softmax(0).numpy(), abs=1e-6)


def test_a_view_has_the_names_of_what_is_seen() -> None:
    # Mutation: leave the parts out.
    agent, _, _ = policy_over(BOX, "--agent ppo")
    parts = (Part("arm", 0, 3), Part("goal", 3, 5))
    rows = Rows(np.zeros((1, 5), np.float32), *(np.zeros(1, dtype) for dtype in ("uint8", "float32", "float32")))
    view = make_view(agent, EnvironmentSpec(Field((5,), "float32"), BOX, parts), rows, {}, 7, 3)
    shown = decode(encode(view))
    assert shown["parts"] == [("arm", 3), ("goal", 2)] and shown["kind"] == "intervals" and len(shown["actions"]) == 3


@pytest.mark.parametrize("name", ["r2d2", "impala-lstm"])
def test_thoughts_are_what_the_agent_acts_by(name: str) -> None:
    # Mutation: inspect the row of another environment, or with the state of another.
    rollout = rollout_of(AGENTS[name])
    for step in range(6):
        rollout.play(10 * step, 10 * step + 3)
        _, thought = seen_by(rollout)
        output, _ = rollout.policy.act(rollout._groups[0].rows, rollout._groups[0].state, None)
        assert thought is not None
        if name == "r2d2":
            best = unscale(torch.tensor(output.extras["greedy"][0])).item()
            assert max(thought.actions) == pytest.approx(best, abs=1e-6)
        else:
            assert thought.actions == pytest.approx(np.exp(output.extras["log_policy"][0]), abs=1e-6)


def test_an_agent_that_draws_while_it_is_watched_goes_on_as_before() -> None:
    # Mutation: leave out `restore_random_state` in `inspect`.
    rollout = rollout_of(AGENTS["impala"])

    def draw(agent: Agent, _rows: Rows, _state: Arrays) -> Inspection:
        return Inspection("values", torch.rand(3, generator=agent.generator).numpy())

    before = rollout.policy.random_state()
    rollout.policy.inspect = MethodType(draw, rollout.policy)  # type: ignore[method-assign]
    seen_by(rollout)
    after = rollout.policy.random_state()
    assert before is not None and after is not None and np.array_equal(after, before)

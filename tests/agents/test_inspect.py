"""What agents show of their thoughts: it is what they act by, and showing it changes nothing that they do."""

from types import MethodType

import numpy as np
import pytest
import torch

import args as options
from agents.interface import Agent, Inspection
from agents.ops.rescaling import unscale
from memory.messages import encode_message
from memory.rows import Array, Arrays, Rows
from programs.actor.rollout import Place, Rollout
from programs.actor.watching import inspect
from programs.common import make_agent
from saber.vector import VectorEnvironment
from tests.chain.environment import ChainEnvironment
from tests.small import FAMILIES, SHORT_CHAIN, TINY

AGENTS = {
    "rainbow_iqn": [*SHORT_CHAIN, *TINY],
    "rainbow": [*SHORT_CHAIN, *TINY, *"--agent rainbow --atoms 9".split()],
    **FAMILIES,
}
KINDS = {
    "rainbow_iqn": "quantiles", "rainbow": "atoms", "impala": "probabilities", "impala-lstm": "probabilities",
    "reinforce": "probabilities", "r2d2": "values", "sac": "probabilities", "sac-lstm": "probabilities",
}  # fmt: skip
VALUED = {"impala", "impala-lstm", "reinforce"}  # agents whose actors have the network of the value


def rollout_of(words: list[str]) -> Rollout:
    args = options.parse([*words, *"--nb-env-per-actor 3 --id-actor 0 --learn-start 5".split()], "test", "")
    environments = [ChainEnvironment(seed) for seed in range(3)]
    agent = make_agent(args, environments[0].spec, torch.device("cpu"), learns=False, seed=1)
    rollout = Rollout(args, agent, VectorEnvironment(list(environments)))
    rollout.load(agent.model.published(), 0)
    return rollout


def seen_by(rollout: Rollout) -> tuple[Array, Inspection | None]:
    return inspect(rollout.agent, rollout._rows, rollout._state)


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_that_is_watched_plays_as_one_that_is_not(name: str) -> None:
    # Mutation: draw the taus of `RainbowIqn.inspection` by `sample_taus`, without `set_state` in `inspect`.
    watched, alone = rollout_of(AGENTS[name]), rollout_of(AGENTS[name])
    for step in range(12):
        first, second = (rollout.play(10 * step, 10 * step + 3) for rollout in (watched, alone))
        assert [*map(encode_message, first)] == [*map(encode_message, second)]
        assert watched.snapshot(Place(0, step)) == alone.snapshot(Place(0, step))
        observation, thought = seen_by(watched)
        assert thought is not None and thought.kind == KINDS[name]
        assert isinstance(thought.value, float) == (name in VALUED)
        assert np.array_equal(observation, watched._rows.obs[0])
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


@pytest.mark.parametrize("name", ["r2d2", "impala-lstm"])
def test_thoughts_are_what_the_agent_acts_by(name: str) -> None:
    # Mutation: inspect the row of another environment, or with the state of another.
    rollout = rollout_of(AGENTS[name])
    for step in range(6):
        rollout.play(10 * step, 10 * step + 3)
        _, thought = seen_by(rollout)
        output, _ = rollout.agent.act(rollout._rows, rollout._state, None)
        assert thought is not None
        if name == "r2d2":
            best = unscale(torch.tensor(output.extras["greedy"][0])).item()
            assert max(thought.actions) == pytest.approx(best, abs=1e-6)
        else:
            assert thought.actions == pytest.approx(np.exp(output.extras["log_policy"][0]), abs=1e-6)


def test_an_agent_that_draws_while_it_is_watched_goes_on_as_before() -> None:
    # Mutation: leave out `set_state` in `inspect`.
    rollout = rollout_of(AGENTS["impala"])

    def draw(agent: Agent, _rows: Rows, _state: Arrays) -> Inspection:
        return Inspection("values", torch.rand(3, generator=agent.generator).numpy())

    before = rollout.agent.generator.get_state()
    rollout.agent.inspect = MethodType(draw, rollout.agent)  # type: ignore[method-assign]
    seen_by(rollout)
    assert rollout.agent.generator.get_state().equal(before)

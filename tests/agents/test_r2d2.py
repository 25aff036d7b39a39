"""R2D2's targets, priorities and exploration against slow transcriptions; the burn-in, and what it is for."""

from typing import Any

import numpy as np
import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.r2d2.agent import R2d2
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.rows import Array, Rows, StepType
from rainbow_iqn_apex.programs.agent import make_agent
from tests.agents.ops.test_rescaling import h, h_inverse
from tests.agents.sequences import Played, agent_of, play, random_row
from tests.agents.test_sequences import in_order
from tests.specs import ATARI

N, GAMMA = 3, 0.9


@pytest.mark.parametrize("architecture", ["shallow", "data-efficient"])
def test_first_features_differ_between_pictures(architecture: str) -> None:
    # Mutation: PyTorch's first weights, with which they differ by 0.004 and 0.011.
    args = options.parse(["--agent", "r2d2", "--architecture", architecture], "test", "")
    agent = make_agent(args, ATARI, torch.device("cpu"), learns=False, seed=2)
    assert isinstance(agent, R2d2)
    draw = torch.Generator().manual_seed(0)
    obs = torch.randint(256, (8, agent.spec.stack, 84, 84), generator=draw, dtype=torch.uint8)
    with torch.inference_mode():
        assert agent.network.core.torso(obs).std(0).mean() > 0.1


def slow_difference(batch: Batch, b: int, t: int, online: Any, target: Any) -> float:
    """The difference of the action at row t of the window, whose rows with a full stack begin at row 2."""
    total, product = 0.0, 1.0  # of gamma and discounts up to the row before
    for k in range(1, N + 1):
        total += product * float(batch.reward[t + k, b])
        product *= GAMMA * float(batch.discount[t + k, b])
        if batch.step_type[t + k, b] == StepType.LAST:
            break
    best = int(online[t - 2 + k, b].argmax())
    wanted = float(h(total + product * h_inverse(float(target[t - 2 + k, b, best]))))
    return wanted - float(online[t - 2, b, int(batch.action[t, b])])


def values(agent: Any, batch: Batch) -> tuple[Any, Any]:
    """Q-values [T, B, A] of both networks at every row with a full stack, from the stored state on."""
    with torch.no_grad():
        inputs, recurrent = agent.learning_inputs(batch)
        return agent.network(inputs, recurrent)[0].double().numpy(), agent.target(inputs, recurrent)[0].double().numpy()


def learned() -> tuple[Any, Batch]:
    """An agent whose target network is another, and a batch that it has played before."""
    agent = agent_of("r2d2", "--discount", str(GAMMA), "--lr-R2D2", "1e-2")
    batch = in_order(play(agent, 200).chunks)
    for _ in range(5):
        agent.update(batch, 0.0)
    return agent, batch


def test_losses_and_priorities_are_those_of_the_formulas() -> None:
    # Mutations: no rescaling, the target's own best action, LAST rows counted, weights in the priorities.
    agent, batch = learned()
    online, target = values(agent, batch)
    assert batch.weights is not None
    B, first, length = len(batch.weights), agent.spec.prefix, agent.spec.length
    losses, priorities = [], []
    for b in range(B):
        rows = [t for t in range(first, first + length) if batch.step_type[t, b] != StepType.LAST]
        sizes = np.array([slow_difference(batch, b, t, online, target) for t in rows])
        losses.append(0.5 * (sizes**2).sum())
        priorities.append((0.9 * np.abs(sizes).max() + 0.1 * np.abs(sizes).mean()) ** 0.9)
    weights = torch.rand(B)
    update = agent.update(batch._replace(weights=weights), 0.0)
    np.testing.assert_allclose(update.priorities, priorities, rtol=1e-3, atol=1e-5)
    assert float(update.metrics["loss"]) == pytest.approx(np.mean(losses), rel=1e-3)


def test_the_weights_scale_the_losses_of_their_sequences() -> None:
    agent, batch = learned()
    before = {key: value.clone() for key, value in agent.network.named_parameters()}
    optimiser: Any = agent.parts["optimiser"]
    optimiser.state.clear()
    assert batch.weights is not None
    agent.update(batch._replace(weights=torch.zeros(len(batch.weights))), 0.0)
    assert all(torch.equal(value, before[key]) for key, value in agent.network.named_parameters())


def test_initial_priorities_are_the_learner_s_as_long_as_the_networks_are_the_same() -> None:
    agent = agent_of("r2d2", "--discount", str(GAMMA))
    played = play(agent, 300, longest=30)
    chunks = played.chunks[3:]
    update = agent.update(in_order(chunks), 0.0)  # target and online network are still the one that acted
    found = []
    for chunk in chunks:
        assert chunk.priorities is not None
        found.append(float(chunk.priorities[0]))
    np.testing.assert_allclose(found, update.priorities, rtol=1e-3, atol=1e-5)


def test_each_environment_has_its_own_rate() -> None:
    for count in (8, 1):
        several = agent_of("r2d2", "--nb-actor", "1", "--nb-env-per-actor", str(count), learns=False)
        expected = [0.4 ** (1 + 7 * i / 7) for i in range(8)] if count == 8 else [0.4**4.5]
        np.testing.assert_allclose(several._exploration(count, None), expected, rtol=1e-6)
        np.testing.assert_allclose(several._exploration(1, np.array([count - 1])), expected[-1:], rtol=1e-6)
    agent, rng = agent_of("r2d2", "--exploration-base", "1", learns=False), np.random.default_rng(0)
    rows = Rows.stack([random_row(rng, StepType.LAST, 5)] * 1)
    kinds = {int(agent.act(rows, {}, 10**6)[0].actions[0]) for _ in range(60)}
    assert len(kinds) == 3, "base 1: always at random"


def test_places_explore_as_the_actor_that_has_them() -> None:
    # Mutation: explore by the agent's own slot whatever the places are.
    rows = Rows.stack([random_row(np.random.default_rng(0), StepType.LAST, 5)] * 3)

    def agent_at(actor: int) -> Any:
        return agent_of("r2d2", *f"--nb-actor 4 --nb-env-per-actor 3 --id-actor {actor}".split(), learns=False)

    def actions(agent: Any, step: int | None, places: Array | None) -> list[list[int]]:
        return [agent.act(rows, {}, step, places)[0].actions.tolist() for _ in range(60)]

    rates = torch.cat([agent_at(actor)._exploration(3, None) for actor in range(4)])
    assert agent_at(1)._exploration(3, np.array([11, 0, 5])).equal(rates[[11, 0, 5]])
    for actor in range(1, 4):
        places, own = np.arange(3 * actor, 3 * actor + 3), actions(agent_at(actor), 10**6, None)
        assert actions(agent_at(0), 10**6, places) == own != actions(agent_at(0), 10**6, None)
        assert actions(agent_at(0), None, places) == actions(agent_at(0), None, None)


def states_of_present_network(agent: Any, played: Played) -> list[dict[str, Any]]:
    """The recurrent state before each row, had the present network played all of it."""
    state: dict[str, Any] = {}
    states: list[dict[str, Any]] = []
    for t, row in enumerate(played.rows):
        if t:
            state["last_action"] = np.array([played.actions[t - 1]], np.int32)
        states.append(state)
        _, state = agent.act(Rows.stack([row]), state, None)
    return states


def test_the_burn_in_brings_a_state_of_another_network_nearer_to_the_present_one_s() -> None:
    # Mutation: a burn-in with the state that it began with.
    agent = agent_of("r2d2", "--burn-in", "12", "--lr-R2D2", "3e-3")
    played = play(agent, 600, longest=200)
    chunks = played.chunks[4:]
    batch = in_order(chunks)
    for _ in range(20):
        agent.update(batch, 0.0)  # now the stored states are another network's
    right = states_of_present_network(agent, played)
    inputs, stored = agent.learning_inputs(batch)
    row = [4 + i for i in range(len(chunks))]  # number of each chunk
    first = [number * agent.spec.period - agent.spec.burn_in for number in row]

    def error(recurrent: Any, rows_later: int) -> float:
        wanted = np.stack([right[t + rows_later]["hidden"][0] for t in first])
        return float(np.abs(recurrent[0].numpy() - wanted).mean())

    errors = {}
    for name, state in {"stored": stored, "zero": tuple(torch.zeros_like(part) for part in stored)}.items():
        with torch.no_grad():
            _, after = agent.network.core(inputs.rows(0, agent.spec.burn_in), state)
        errors[name] = (error(state, 0), error(after, agent.spec.burn_in))
    assert errors["stored"][1] < 0.5 * errors["stored"][0] and errors["zero"][1] < 0.5 * errors["zero"][0], errors
    assert errors["stored"][0] < errors["zero"][0], "and a stored state is nearer than none"


def test_no_gradient_passes_through_the_burn_in() -> None:
    agent = agent_of("r2d2")
    batch = in_order(play(agent, 200).chunks)
    inputs, recurrent = agent.learning_inputs(batch)
    watched = tuple(part.clone().requires_grad_() for part in recurrent)
    agent.learning_inputs = lambda _: (inputs, watched)
    q, _, _ = agent._values(batch)
    assert q.requires_grad
    found: tuple[torch.Tensor | None, ...] = torch.autograd.grad(q.sum(), watched, allow_unused=True)
    assert found == (None, None)


def test_updates_stand_for_as_many_steps_as_make_their_samples() -> None:
    agent = agent_of("r2d2", "--samples-per-insert", "0.5")
    assert agent.steps_per_update == 4 * 4 / 0.5, "4 sequences a batch, a new one every 4 rows"
    assert agent._options.WAITS_FOR_ROWS
    assert agent_of("r2d2", "--samples-per-insert", "16").steps_per_update == 1
    with pytest.raises(UserError, match=r"^--samples-per-insert: must not exceed --batch-size 4 times .* 4, is 17$"):
        agent_of("r2d2", "--samples-per-insert", "17")

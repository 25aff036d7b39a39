"""PQN: exploration by the run's step, and targets of the weights that acted."""

from types import MethodType

import numpy as np
import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.networks.core import Inputs
from rainbow_iqn_apex.agents.networks.trunks import TRUNKS, ChannelNorm, layer_normalised
from rainbow_iqn_apex.agents.pqn.agent import Pqn
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.environment_spec import Box, EnvironmentSpec, Field
from rainbow_iqn_apex.memory.rows import Rows, StepType
from rainbow_iqn_apex.programs.agent import make_agent
from tests.agents.sequences import ACTIONS, CPU, SETTINGS, agent_of, play, random_row
from tests.agents.test_sequences import in_order


def batch_of(agent: Pqn) -> Batch:
    return in_order(play(agent, 100).chunks)


@pytest.mark.parametrize(("step", "share"), [(0, 1.0), (500, 0.6), (1000, 0.2), (10**6, 0.2), (None, 0.001)])
def test_the_share_of_random_actions_falls_with_the_run_s_steps(step: int | None, share: float) -> None:
    agent = agent_of("pqn", "--exploration-steps", "1000", "--exploration-end", "0.2", learns=False)
    row, count = random_row(np.random.default_rng(0), StepType.LAST, 5), 4000
    rows = Rows.stack([row] * count)
    greedy = agent.act(rows, {}, None)[0].actions[0]
    others = np.mean(agent.act(rows, {}, step)[0].actions != greedy)
    assert abs(others - share * (1 - 1 / ACTIONS)) < 0.04  # five standard deviations


def targets_of(agent: Pqn, batch: Batch) -> list[float]:
    """Return the targets of all learnable rows by the paper's algorithm 1, row by row."""
    inputs, _ = agent.learning_inputs(batch)
    with torch.no_grad():
        best = agent.network(inputs)[0].amax(2)  # [T + 1, B]
    reward, discount, step_type = (
        part[agent.spec.prefix :] for part in (batch.reward, batch.discount, batch.step_type)
    )
    trace, following, found = agent._options.trace_lambda, best[-1], list[float]()
    for t in reversed(range(len(best) - 1)):
        mixed = trace * following + (1 - trace) * best[t + 1]
        target = agent.shown_reward(reward[t + 1]) + agent._learning.discount * discount[t + 1] * mixed
        is_last = step_type[t] == StepType.LAST
        found += target[~is_last].tolist()
        following = torch.where(is_last, best[t], target)
    return sorted(found)


def test_a_round_s_targets_are_those_of_the_weights_that_acted() -> None:
    # Mutations: compute the targets in each epoch, or in each update; bootstrap from the mean of the actions.
    agent = agent_of("pqn", "--lr-PQN", "0.1", "--epochs", "3", "--minibatches", "4")
    seen: list[tuple[Tensor, Tensor]] = []
    step = agent._step

    def watched(_self: Pqn, inputs: Inputs, action: Tensor, target: Tensor) -> dict[str, Tensor]:
        seen.append((inputs.obs.flatten(2).double().sum(2).flatten(), target.flatten()))
        metrics: dict[str, Tensor] = step(inputs, action, target)
        return metrics

    agent._step = MethodType(watched, agent)
    batch = batch_of(agent)
    before, expected = [weight.detach().clone() for weight in agent.network.parameters()], targets_of(agent, batch)
    agent.update(batch, 0.0)
    assert all(not torch.equal(a, b) for a, b in zip(before, agent.network.parameters(), strict=True))
    epochs = []
    for start in range(0, 12, 4):
        sums, targets = (torch.cat(parts) for parts in zip(*seen[start : start + 4], strict=True))
        epochs.append(sorted(zip(sums.tolist(), targets.tolist(), strict=True)))
    learnable = int((batch.step_type[agent.spec.prefix : -1] != StepType.LAST).sum())
    assert len(epochs[0]) == learnable, "each learnable row is learned from once an epoch"
    assert epochs[0] == epochs[1] == epochs[2]
    assert sorted(target for _, target in epochs[0]) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_learning_sees_what_acting_saw() -> None:
    # Mutation: a stack that reaches across an episode's end.
    agent = agent_of("pqn", "--exploration-steps", "1", "--exploration-end", "0")
    batch = batch_of(agent)
    inputs, _ = agent.learning_inputs(batch)
    greedy = agent.network(inputs)[0].argmax(2)[:-1]  # [T, B]
    rows = slice(agent.spec.prefix, -1)
    learnable = batch.step_type[rows] != StepType.LAST
    assert torch.equal(batch.action[rows][learnable].long(), greedy[learnable])
    assert len(greedy.unique()) > 1, "not one action alone"


@pytest.mark.parametrize("architecture", ["shallow", "data-efficient", "deep"])
def test_each_convolution_has_a_norm_over_the_channels_of_a_pixel(architecture: str) -> None:
    plain = TRUNKS[architecture](4)
    count = sum(isinstance(layer, torch.nn.Conv2d) for layer in plain.modules())
    body = layer_normalised(plain)
    assert sum(isinstance(layer, ChannelNorm) for layer in body.modules()) == count
    x = torch.randn(2, 4, 84, 84)
    x = body[:2](x)
    torch.testing.assert_close(x.mean(1), torch.zeros_like(x[:, 0]), atol=1e-5, rtol=0)
    assert (x.var(1, correction=0) - 1).abs().max() < 0.05
    assert not torch.allclose(x.mean((2, 3)), torch.zeros(2, x.shape[1]), atol=1e-3), "not over a channel's pixels"


def test_numbers_as_actions_are_refused() -> None:
    args = options.parse(SETTINGS["pqn"].split(), "test", "")
    spec = EnvironmentSpec(Field((5,), "float32"), Box(2))
    with pytest.raises(UserError, match="--agent: pqn chooses among discrete actions"):
        make_agent(args, spec, CPU, learns=False, seed=1)

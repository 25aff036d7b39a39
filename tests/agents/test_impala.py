"""IMPALA's loss, term by term, against a slow transcription; its rewards; the learned weight of the entropy."""

from typing import Any

import numpy as np
import pytest
import torch

from rainbow_iqn_apex.agents.impala.losses import Computed
from rainbow_iqn_apex.agents.ops import LAST
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.rows import Rows, StepType
from tests.agents.sequences import ACTIONS, agent_of, play, random_row
from tests.agents.test_sequences import in_order
from tests.ground_truth import vtrace as truth

COSTS = "--baseline-cost 0.7 --entropy-cost 0.03 --kl-cost 0.2 --trace-lambda 0.9 --rho-threshold 1.3 --discount 0.9"


def slow_loss(agent: Any, batch: Batch, log_policy: Any, value: Any, *, mean: bool) -> dict[str, float]:
    """Every term as AGENTS.md has it, row by row."""
    T, B = log_policy.shape[:2]
    prefix = agent.spec.prefix
    terms: dict[str, list[float]] = {"policy": [], "value": [], "entropy": [], "kl": []}
    for b in range(B):
        reward, discount, step_type = (
            batch.rows[name][prefix:, b].numpy().astype(float) for name in ("reward", "discount", "step_type")
        )
        action = batch.action[prefix:-1, b].numpy()
        log_mu = batch.rows["extras.log_policy"][prefix:-1, b].numpy()[np.arange(T), action]
        log_pi = log_policy[np.arange(T), b, action]
        rows = truth.Rows(np.exp(log_pi - log_mu), value[:, b], np.clip(reward, -1, 1), discount, step_type)
        targets, advantages = truth.vtrace(rows, 0.9, 1.3, 1.0, 1.0, 0.9)
        for t in range(T):
            if step_type[t] != StepType.LAST:
                terms["policy"].append(-log_pi[t] * advantages[t])
                terms["value"].append(0.5 * (targets[t] - value[t, b]) ** 2)
                terms["entropy"].append(-(np.exp(log_policy[t, b]) * log_policy[t, b]).sum())
                terms["kl"].append(log_mu[t] - log_pi[t])
    return {name: float(np.mean(found) if mean else np.sum(found)) for name, found in terms.items()}


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("name", ["impala", "impala-lstm"])
def test_the_loss_is_the_sum_of_its_terms(name: str, reduction: str) -> None:
    agent = agent_of(name, "--loss-reduction", reduction, *COSTS.split())
    batch = in_order(play(agent, 200).chunks)
    agent.update(batch, 0.0)  # now the policy is another one than that which acted
    with torch.no_grad():
        log_policy, value, *_ = agent.network(*agent.learning_inputs(batch))
        now = Computed(log_policy[:-1], value, None)
        found, _, metrics = agent._losses(agent._played(batch), now, 0.03)
    terms = slow_loss(agent, batch, log_policy[:-1].double().numpy(), value.double().numpy(), mean=reduction == "mean")
    wanted = terms["policy"] + 0.7 * terms["value"] - 0.03 * terms["entropy"] + 0.2 * terms["kl"]
    assert float(found) == pytest.approx(wanted, rel=1e-4, abs=1e-5)
    assert float(metrics["policy_loss"]) == pytest.approx(terms["policy"], rel=1e-4, abs=1e-5)
    assert float(metrics["value_loss"]) == pytest.approx(terms["value"], rel=1e-4)
    count = int((batch.step_type[agent.spec.prefix : -1] != LAST).sum())
    assert float(metrics["entropy"]) == pytest.approx(
        terms["entropy"] / (1 if reduction == "mean" else count), rel=1e-4
    )


def test_rewards_are_clipped_or_squashed() -> None:
    reward = torch.tensor([-30.0, -1.0, 0.0, 0.5, 20.0])
    assert agent_of("impala").shown_reward(reward).tolist() == [-1, -1, 0, 0.5, 1]
    assert agent_of("impala", "--reward-clip", "0").shown_reward(reward).tolist() == reward.tolist()
    soft = agent_of("impala", "--reward-transform", "soft-asymmetric").shown_reward(reward)
    wanted = [5 * np.tanh(r / 5) * (0.3 if r < 0 else 1) for r in reward.tolist()]
    np.testing.assert_allclose(soft, wanted, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("target", [0.3, 0.9])
def test_the_entropy_s_weight_is_learned_until_the_entropy_is_as_wanted(target: float) -> None:
    # Mutation: the sign of the difference turned round.
    agent = agent_of("impala", "--target-entropy", str(target), "--lr-IMPALA", "3e-3", "--max-gradient-norm", "0")
    batch = in_order(play(agent, 200).chunks)
    assert float(agent._entropy_cost().detach()) == pytest.approx(0.01), "it begins where --entropy-cost is"
    entropies = [float(agent.update(batch, 0.0).metrics["entropy"]) for _ in range(600)]
    assert np.mean(entropies[-50:]) == pytest.approx(target, abs=0.15)


def test_actions_are_drawn_from_the_recorded_policy_and_evaluations_take_the_likeliest() -> None:
    agent, row = agent_of("impala", learns=False), random_row(np.random.default_rng(0), StepType.LAST, 5)
    with torch.no_grad():
        agent.network.policy.bias += torch.tensor([0.0, 1.0, 0.5])
    rows = Rows.stack([row] * 4000)
    drawn, _ = agent.act(rows, {}, 10**6)
    shares = np.bincount(drawn.actions, minlength=ACTIONS) / 4000
    np.testing.assert_allclose(shares, np.exp(drawn.extras["log_policy"][0]), atol=0.03)
    best = int(drawn.extras["log_policy"][0].argmax())
    assert set(agent.act(rows, {}, None)[0].actions) == {best}
    stochastic = agent_of("impala", "--stochastic", learns=False)
    assert len(set(stochastic.act(rows, {}, None)[0].actions)) == ACTIONS


def test_the_learning_rate_falls_to_zero_and_is_that_of_the_command_line_after_a_resume() -> None:
    agent = agent_of("impala", "--lr-IMPALA", "0.5")
    batch = in_order(play(agent, 100).chunks)
    optimiser: Any = agent.parts["optimiser"]
    for progress, wanted in ((0.0, 0.5), (0.25, 0.375), (1.0, 0.0)):
        agent.update(batch, progress)
        assert float(optimiser.param_groups[0]["lr"]) == wanted
    other = agent_of("impala", "--lr-IMPALA", "0.125")
    optimiser_of_other: Any = other.parts["optimiser"]
    optimiser_of_other.load_state_dict(optimiser.state_dict())
    other.update(batch, 0.5)
    assert float(optimiser_of_other.param_groups[0]["lr"]) == 0.0625

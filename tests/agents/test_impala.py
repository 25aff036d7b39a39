"""IMPALA's loss, term by term, against a slow transcription; its rewards; the learned weight of the entropy."""

from typing import Any

import numpy as np
import pytest
import torch

from rainbow_iqn_apex.agents.distributions import check_target_entropy
from rainbow_iqn_apex.agents.impala.losses import Computed
from rainbow_iqn_apex.agents.ops import LAST
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.environment_spec import Box, Discrete
from rainbow_iqn_apex.memory.rows import Array, Rows, StepType
from tests.agents.sequences import ACTIONS, agent_of, play, random_row
from tests.agents.test_sequences import in_order
from tests.ground_truth.impala import loss_terms

COSTS = "--baseline-cost 0.7 --entropy-cost 0.03 --kl-cost 0.2 --trace-lambda 0.9 --rho-threshold 1.3 --discount 0.9"


def arrays(agent: Any, batch: Batch) -> dict[str, Array]:
    """Return what the slow loss needs, with the network and the target as they are."""
    rows, chosen = slice(agent.spec.prefix, None), slice(agent.spec.prefix, -1)
    with torch.no_grad():
        now = agent.network(*agent.learning_inputs(batch))
        target = (agent._target or agent.network)(*agent.learning_inputs(batch))
    found = {
        "reward": batch.reward[rows].clamp(-1, 1), "discount": batch.discount[rows], "step_type": batch.step_type[rows],
        "action": batch.action[chosen], "mu": batch.rows["extras.log_policy"][chosen].exp(),
        "pi": now.log_policy[:-1].exp(), "target": target.log_policy[:-1].exp(), "value": now.value,
    }  # fmt: skip
    if "extras.value" in batch.rows:
        found["recorded"] = batch.rows["extras.value"][chosen]
    numbers = {name: tensor.numpy().astype(float) for name, tensor in found.items()}
    return numbers if batch.replayed is None else numbers | {"replayed": batch.replayed.numpy()}


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
    terms = loss_terms(arrays(agent, batch), 0.9, rho=1.3, trace=0.9)
    rows = int((batch.step_type[agent.spec.prefix : -1] != LAST).sum()) if reduction == "sum" else 1
    wanted = terms["policy"] + 0.7 * terms["value"] - 0.03 * terms["entropy"] + 0.2 * terms["kl"]
    assert float(found) == pytest.approx(rows * wanted, rel=1e-4, abs=1e-5)
    assert float(metrics["policy_loss"]) == pytest.approx(rows * terms["policy"], rel=1e-4, abs=1e-5)
    assert float(metrics["value_loss"]) == pytest.approx(rows * terms["value"], rel=1e-4)
    assert float(metrics["entropy"]) == pytest.approx(terms["entropy"], rel=1e-4)


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
    agent = agent_of("impala", "--target-entropy", str(target), "--lr-IMPALA", "1e-2", "--max-gradient-norm", "0")
    batch = in_order(play(agent, 200).chunks)
    assert float(agent._least_entropy.price()) == pytest.approx(0.01), "it begins where --entropy-cost is"
    entropies = [float(agent.update(batch, 0.0).metrics["entropy"]) for _ in range(600)]
    assert np.mean(entropies[-50:]) == pytest.approx(target, abs=0.15)


def test_the_entropy_s_weight_stays_where_it_can_grow_back_from() -> None:
    # Mutation: let it shrink for as long as the entropy is above: here to 1e-14, a run's length from where it matters.
    words = ["--target-entropy", "0.1", "--entropy-cost", "1e-7", "--lr-IMPALA", "3e-3"]
    agent = agent_of("impala", *words)
    batch = in_order(play(agent, 100).chunks)
    for _ in range(200):
        agent.update(batch, 0.0)
    assert 0.5e-8 < float(agent._least_entropy.price()) <= 1.1e-8


def test_an_entropy_that_no_policy_has_is_refused() -> None:
    # Mutation: no check: the weight of the entropy grows without end.
    for words in ("impala --target-entropy 1.1", "ppo --target-entropy 1.2"):
        with pytest.raises(UserError, match=r"^--target-entropy: must be below 1\.099 nats, that of all actions alike"):
            agent_of(*words.split())
    for words in ("impala --target-entropy 1.0", "ppo --target-entropy 1.0"):
        agent_of(*words.split(), "--entropy-cost", "0")
    check_target_entropy(0, Discrete(1))
    check_target_entropy(9, Box(1))


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

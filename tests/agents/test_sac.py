"""SAC: losses and gradients against a slow transcription, temperature, target critics and first actions."""

import copy
import math

import numpy as np
import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.sac.agent import Sac
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.environment_spec import ActionSpec, Box, Discrete, EnvironmentSpec, Field, MultiDiscrete
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.memory.rows import Row, Rows, StepType
from rainbow_iqn_apex.programs.agent import make_agent
from tests.agents.sequences import CPU, play, random_row, replay_with
from tests.agents.test_sequences import weights_of
from tests.ground_truth.sac import Reference

NUMBERS, CHOICE, VECTOR = Box(2), Discrete(3), Field((5,), "uint8")
GAMMA = 0.9
every_action = pytest.mark.parametrize("action", [NUMBERS, CHOICE], ids=["box", "discrete"])


pytestmark = pytest.mark.usefixtures("one_thread")


def agent_of(action: ActionSpec, *more: str, seed: int = 3, obs: Field = VECTOR) -> Sac:
    """Make a small agent; `more` are options."""
    small = "--agent sac --hidden-size 9 --discount 0.9 --history-length 2 --lr-SAC 1e-2 --learn-start 60"
    args = options.parse([*small.split(), *more], "test", "")
    agent = make_agent(args, EnvironmentSpec(obs, action), CPU, learns=True, seed=seed)
    assert isinstance(agent, Sac)
    return agent


def replay_of(agent: Sac, action: ActionSpec) -> Replay:
    return replay_with(agent, EnvironmentSpec(VECTOR, action), play(agent, 300).chunks, 600)


def batch_of(agent: Sac, action: ActionSpec, size: int = 100) -> Batch:
    """Draw a batch of what the agent has played, with LAST rows among its first ones."""
    batch = replay_of(agent, action).sample(size, 0.0)
    rows = {name: batch.rows[name].clone() for name in batch.rows}
    rows["step_type"][agent.spec.prefix, :7] = StepType.LAST  # a uniform replay never begins there
    return Batch(rows, {})


def learned(action: ActionSpec, *more: str) -> tuple[Sac, Batch]:
    """Make an agent whose target critics and temperature are no longer the first ones, and a batch."""
    agent = agent_of(action, *more)
    batch = batch_of(agent, action)
    for _ in range(5):
        agent.update(batch, 0.0)
    return agent, batch


@every_action
@pytest.mark.parametrize("n", [1, 3])
def test_losses_and_gradients_are_those_of_the_formulas(action: ActionSpec, n: int) -> None:
    # Mutations: the larger or the first critic, no entropy in the target, the online critics there, rewards of one row
    # before, LAST rows counted, the policy's loss in the critics' gradient, a target with gradient, n + 1 steps.
    agent, batch = learned(action, "--multi-step", str(n))
    assert set(batch.discount[2, batch.step_type[2] == StepType.LAST].tolist()) == {0.0, 1.0}, "deaths and truncations"
    reference = Reference(agent, action, n, GAMMA)
    slow = reference.losses(batch)
    metrics = agent.update(batch, 0.0).metrics
    found = [float(metrics[name]) for name in ("value_loss", "policy_loss", "entropy", "loss")]
    wanted = [float(slow.value.detach()), float(slow.policy.detach()), slow.entropy]
    assert found == pytest.approx([*wanted, wanted[0] + wanted[1]], rel=1e-3, abs=1e-4)
    pairs = ((slow.policy, reference.network, agent.network), (slow.value, reference.critics, agent.critics))
    for loss, module, own in pairs:
        gradients = torch.autograd.grad(loss, list(module.parameters()), retain_graph=True)
        for (name, parameter), gradient in zip(own.named_parameters(), gradients, strict=True):
            assert parameter.grad is not None
            torch.testing.assert_close(parameter.grad.double(), gradient, rtol=2e-3, atol=1e-5, msg=name)


@every_action
def test_the_temperature_s_gradient_neither_shrinks_that_of_the_policy_nor_is_shrunk(action: ActionSpec) -> None:
    # Mutation: clip the policy and the temperature to one norm.
    agent, batch = learned(action)
    free = copy.deepcopy(agent)
    limit = 0.001
    agent._step._limit = limit
    metrics = [of.update(batch, 0.0).metrics for of in (agent, free)]
    exponents = [of.temperature.multiplier.exponent.grad for of in (agent, free)]
    assert exponents[0] is not None and torch.equal(exponents[0], exponents[1])  # type: ignore[arg-type]
    assert abs(float(exponents[0])) > 10 * limit
    for own, whole in ((agent.network, free.network), (agent.critics, free.critics)):
        norms = [
            float(torch.nn.utils.get_total_norm([parameter.grad for parameter in module.parameters()]))  # type: ignore[misc]
            for module in (own, whole)
        ]
        assert norms[0] == pytest.approx(limit, rel=0.01) and norms[1] > 2 * limit
    assert metrics[0]["gradient_norm"] == metrics[1]["gradient_norm"], "it is measured before"


def test_a_discrete_policy_is_averaged_over_and_never_drawn_from_to_learn() -> None:
    agent, batch = learned(CHOICE)
    before = agent.generator.get_state()
    agent.update(batch, 0.0)
    assert agent.generator.get_state().equal(before)


# --- what is learned beside the policy ---


@every_action
def test_the_target_critics_follow_by_exactly_their_share(action: ActionSpec) -> None:
    agent, batch = learned(action, "--target-rate", "0.125")
    before = copy.deepcopy(agent.target)
    agent.update(batch, 0.0)
    for name, value in agent.target.named_parameters():
        online = agent.critics.get_parameter(name)
        assert torch.equal(value, before.get_parameter(name).lerp(online, 0.125))
        assert not torch.equal(value, online)


def bandit(agent: Sac, action: ActionSpec) -> Batch:
    """Return episodes of one action, whose reward depends on it alone."""
    generator = torch.Generator().manual_seed(5)
    shape, B = (3, 256), 256
    step_type = torch.tensor([[StepType.LAST], [StepType.FIRST], [StepType.LAST]], dtype=torch.uint8).expand(shape)
    if isinstance(action, Box):
        chosen = 2 * torch.rand(*shape, action.size, generator=generator) - 1
        reward = -10 * (chosen[1] - 0.3).square().sum(1)
    else:
        chosen = torch.randint(3, shape, generator=generator, dtype=torch.int32)
        reward = chosen[1].float()
    rows = {
        "obs": torch.ones(*shape, 5, dtype=torch.uint8),
        "step_type": step_type,
        "reward": torch.stack((torch.zeros(B), torch.zeros(B), reward)),
        "discount": torch.stack((torch.ones(B), torch.ones(B), torch.zeros(B))),
        "action": chosen,
    }
    assert agent.spec.sample_window == len(step_type)
    return Batch(rows, {})


@pytest.mark.slow
@pytest.mark.parametrize(("action", "share", "wanted"), [(NUMBERS, 0.98, -2.0), (CHOICE, 0.6, 0.6 * math.log(3))])
def test_the_temperature_brings_the_entropy_to_its_target(action: ActionSpec, share: float, wanted: float) -> None:
    # Mutations: the temperature's loss with the other sign, a target entropy of +K.
    more = f"--reward-clip 0 --entropy-share {share} --hidden-size 32 --target-rate 0.05".split()
    agent = agent_of(action, *more)
    batch, entropies = bandit(agent, action), []
    for _ in range(1200):
        metrics = agent.update(batch, 0.0).metrics
        entropies.append(float(metrics["entropy"]))
    assert np.mean(entropies[-300:]) == pytest.approx(wanted, abs=0.1)
    assert abs(entropies[0] - wanted) > 0.3, "it began elsewhere"
    row = Rows.stack([Row(np.ones(5, np.uint8), StepType.FIRST, 0.0, 1.0)])
    best = agent.act(row, {}, None)[0].actions[0]
    assert best == pytest.approx(0.3, abs=0.1) if action is NUMBERS else best == 2


# --- acting ---


@every_action
def test_the_first_actions_are_uniform_and_later_ones_the_policy_s(action: ActionSpec) -> None:
    # Mutations: random actions after learn-start, or in an evaluation; numbers in 0 to 1.
    agent = agent_of(action, "--learn-start", "500")
    with torch.no_grad():
        agent.network.policy.linear.bias[:] = torch.tensor([2.0, -2.0, -9.0, -9.0] if action is NUMBERS else [9, 0, 0])
    rows = Rows.stack([random_row(np.random.default_rng(2), StepType.LAST, 5)] * 3000)
    begun, later, evaluated = (agent.act(rows, {}, step)[0].actions for step in (499, 500, None))
    if action is NUMBERS:
        assert begun.dtype == np.float32 and np.abs(begun).max() <= 1
        for k in range(2):
            counts = np.histogram(begun[:, k], 10, (-1, 1))[0]
            assert counts == pytest.approx(300, abs=90)
        assert abs(np.corrcoef(begun.T)[0, 1]) < 0.1
        assert (later[:, 0] > 0.8).all() and (later[:, 1] < -0.8).all() and len(np.unique(later)) > 1000
    else:
        assert np.bincount(begun) == pytest.approx(1000, abs=120)
        assert np.bincount(later)[0] > 2900
    assert len(np.unique(evaluated, axis=0)) == 1
    stochastic = agent_of(action, "--stochastic")
    assert len(np.unique(stochastic.act(rows, {}, None)[0].actions, axis=0)) > 1


def test_chunks_hold_the_actions_as_the_environment_gets_them() -> None:
    agent = agent_of(NUMBERS)
    for chunk in play(agent, 400).chunks:
        assert chunk.rows["action"].dtype == np.float32
        assert NUMBERS.error(chunk.rows["action"]) == ""


def test_several_choices_at_once_are_refused() -> None:
    with pytest.raises(UserError, match="--agent: sac chooses among discrete actions, or numbers"):
        agent_of(MultiDiscrete((2, 3)))


# --- every network ---


@every_action
def test_pictures_go_through_the_policy_s_torso_and_one_of_both_critics(action: ActionSpec) -> None:
    frame = Field((84, 84), "uint8")
    agent = agent_of(action, "--architecture", "data-efficient", obs=frame)
    rng = np.random.default_rng(1)
    rows, B = {}, 6
    rows["obs"] = torch.from_numpy(rng.integers(0, 256, (3, B, 84, 84), dtype=np.uint8))
    rows["step_type"] = torch.ones(3, B, dtype=torch.uint8)
    rows["reward"], rows["discount"] = torch.randn(3, B), torch.ones(3, B)
    rows["action"] = torch.rand(3, B, 2) if action is NUMBERS else torch.ones(3, B, dtype=torch.int32)
    before = {name: value.clone() for name, value in weights_of(agent).items()}
    metrics = agent.update(Batch(rows, {}), 0.0).metrics
    assert all(metric.isfinite() for metric in metrics.values())
    after = weights_of(agent)
    still = [name for name, value in before.items() if torch.equal(value, after[name]) and "bias" not in name]
    assert still == [] and sum("core" in name for name in before) == 3 * sum("model.core" in name for name in before)

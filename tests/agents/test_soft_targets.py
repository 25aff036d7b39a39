"""Rainbow-IQN with Munchausen's targets: what of them the agent puts together."""

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.rainbow_iqn.agent import RainbowIqn
from rainbow_iqn_apex.memory.batch import Transitions
from tests.agents.test_agents import agent_of
from tests.ground_truth import munchausen as truth

B = 12


def soft_agent(alpha: float, temperature: float) -> RainbowIqn:
    """An agent whose target network is another than its own, without noise."""
    words = f"--munchausen {alpha} --munchausen-temperature {temperature} --munchausen-clip -0.5 --noisy-std 0"
    agent = agent_of("rainbow_iqn", *words.split())
    assert isinstance(agent, RainbowIqn)
    with torch.no_grad():
        for parameter in agent.target.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    return agent


def transitions_of(agent: RainbowIqn) -> Transitions:
    draw = torch.Generator().manual_seed(4)
    obs, later = torch.randint(256, (2, B, agent.spec.stack, 5), generator=draw, dtype=torch.uint8)
    action = torch.randint(agent.network.nb_actions, (B,), generator=draw)
    return Transitions(obs, action, torch.randn(B, generator=draw), torch.rand(B, generator=draw), later)


def target_quantiles(agent: RainbowIqn, obs: Tensor) -> Tensor:
    """What the target network says next; draws as the agent does."""
    quantiles: Tensor = agent.target(obs, *agent._drawn(agent.target, agent._options.num_tau_prime_samples, len(obs)))
    return quantiles


@torch.no_grad()
def test_rewards_and_bootstrap_come_from_the_target_network() -> None:
    # Mutations: take the online network's values; add the bonus of the next state; leave the discount out.
    agent = soft_agent(0.9, 0.1)
    transitions = transitions_of(agent)
    state = agent.generator.get_state()
    found = agent._soft_targets(transitions)()
    agent.generator.set_state(state)
    values = target_quantiles(agent, transitions.obs).mean(0).double().numpy()
    bonus = truth.bonus(values, transitions.action.numpy(), 0.9, 0.1, -0.5)
    later = truth.soft_quantiles(target_quantiles(agent, transitions.next_obs).double().numpy(), 0.1)
    expected = transitions.return_ + torch.from_numpy(bonus) + transitions.discount * torch.from_numpy(later)
    torch.testing.assert_close(found, expected.float(), rtol=1e-4, atol=1e-5)
    assert bonus.min() < 0

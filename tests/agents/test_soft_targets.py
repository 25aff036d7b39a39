"""Rainbow-IQN with Munchausen's targets: what of them the agent puts together."""

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.networks.duelling import QuantileNetwork
from rainbow_iqn_apex.agents.rainbow_iqn.agent import RainbowIqn, quantile_huber_loss
from rainbow_iqn_apex.memory.batch import Transitions
from tests.agents.test_agents import agent_of
from tests.ground_truth import munchausen as truth

B = 12


def soft_agent(alpha: float, temperature: float) -> RainbowIqn:
    """An agent whose target network is another than its own."""
    words = f"--munchausen {alpha} --munchausen-temperature {temperature} --munchausen-clip -0.5"
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


def quantiles_of(agent: RainbowIqn, network: QuantileNetwork, count: int, obs: Tensor) -> tuple[Tensor, Tensor]:
    """What a network says next, and at which fractions; draws as the agent does."""
    taus, weights = agent._drawn(network, count, len(obs))
    return network(obs, taus, weights), taus


@torch.no_grad()
def test_the_bonus_is_the_online_network_s_and_the_bootstrap_the_target_network_s() -> None:
    # Mutations: take the other network's values for either; add the bonus of the next state; leave the discount out.
    agent = soft_agent(0.9, 0.1)
    transitions, options = transitions_of(agent), agent._options
    state = agent.generator.get_state()
    found, values = agent.losses(transitions, agent.target_pass(transitions))
    agent.generator.set_state(state)
    then, _ = quantiles_of(agent, agent.target, options.num_tau_prime_samples, transitions.next_obs)
    now, taus = quantiles_of(agent, agent.network, options.num_tau_samples, transitions.obs)
    bonus = truth.bonus(now.mean(0).double().numpy(), transitions.action.numpy(), 0.9, 0.1, -0.5)
    later = torch.from_numpy(truth.soft_quantiles(then.double().numpy(), 0.1))
    returns = transitions.return_ + torch.from_numpy(bonus) + transitions.discount * later
    chosen = now[:, torch.arange(B), transitions.action]  # [N, B]
    expected = quantile_huber_loss(chosen, taus, returns.float(), options.kappa)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(values, chosen.mean(0))
    assert bonus.min() < 0

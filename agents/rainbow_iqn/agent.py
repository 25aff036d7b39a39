"""Rainbow-IQN (Toromanoff, Wirbel and Moutarde 2019, arXiv 1908.04683): Rainbow with IQN in the place of C51.

Implemented: implicit quantiles (Dabney et al. 2018, arXiv 1806.06923), double Q-learning on the mean of K quantiles,
duelling noisy weights, n-step returns, prioritised replay; by option, Munchausen's targets. Not
implemented: risk-sensitive policies.
Letters: N, N' quantiles of the online and the target network, K of the policy, B batch, E environments, A actions.
"""

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.interface import Setup
from rainbow_iqn_apex.agents.networks.duelling import QuantileNetwork, Weights
from rainbow_iqn_apex.agents.ops.munchausen import munchausen_bonus, soft_quantiles
from rainbow_iqn_apex.agents.ops.n_step import NStep
from rainbow_iqn_apex.agents.ops.quantile import quantile_huber_loss
from rainbow_iqn_apex.agents.policy import Inspection
from rainbow_iqn_apex.agents.q_learning.agent import PolicyOutput, QLearningAgent, network_spec
from rainbow_iqn_apex.agents.rainbow_iqn.options import RainbowIqnOptions
from rainbow_iqn_apex.memory.batch import Transitions


class RainbowIqn(QLearningAgent):
    """The agent of `--agent rainbow_iqn`."""

    _options: RainbowIqnOptions
    network: QuantileNetwork
    target: QuantileNetwork

    def __init__(self, setup: Setup) -> None:
        options = setup.own
        assert isinstance(options, RainbowIqnOptions)
        spec = network_spec(setup, options)
        network = QuantileNetwork(spec, options.quantile_embedding_dim)
        target = QuantileNetwork(spec, options.quantile_embedding_dim) if setup.learns else None
        super().__init__(setup, options, network, target, (options.lr_IQN, options.adam_eps_IQN))
        self.priority_exponent = options.priority_exponent_IQN

    def policy_output(self, stack: Tensor, weights: Weights) -> PolicyOutput:
        """Return quantiles at K random fractions."""
        taus = self.sample_taus(self._options.num_quantile_samples, len(stack))  # [K, E]
        quantiles = self.network(stack, taus, weights)  # [K, E, A]
        return PolicyOutput(quantiles.mean(0), quantiles.permute(1, 2, 0), {"taus": taus.T})

    def inspection(self, stack: Tensor, weights: Weights) -> Inspection:
        """Return quantiles at K even fractions."""
        count = self._options.num_quantile_samples
        taus = (torch.arange(count, device=self._device) + 0.5) / count  # [K]
        quantiles = self.network(stack, taus.unsqueeze(1), weights)[:, 0]  # [K, A]
        mean, places, curves = (part.cpu().numpy() for part in (quantiles.mean(0), taus, quantiles.T))
        return Inspection("quantiles", mean, None, places, curves)

    def losses(self, transitions: Transitions) -> tuple[Tensor, Tensor]:
        """Return quantile Huber losses against the target network's returns."""
        options, batch = self._options, len(transitions.action)
        index = torch.arange(batch, device=self._device)
        with torch.no_grad():
            targets = self._soft_targets(transitions) if options.munchausen else self._double_targets(transitions)
        taus = self.sample_taus(options.num_tau_samples, batch)  # [N, B]
        quantiles = self.network(transitions.obs, taus, self.noisy(self.network))[
            :, index, transitions.action
        ]  # [N, B]
        return quantile_huber_loss(quantiles, taus, targets, options.kappa), quantiles.mean(0)

    def _double_targets(self, transitions: Transitions) -> Tensor:
        """Return returns [N', B] of the actions that the online network chooses."""
        options, batch = self._options, len(transitions.action)
        taus = self.sample_taus(options.num_quantile_samples, batch)  # [K, B]
        best = self.network.best_actions(transitions.next_obs, taus, self.noisy(self.network))  # [B]
        index = torch.arange(batch, device=self._device)
        bootstrap = self._target_quantiles(transitions.next_obs)[:, index, best]  # [N', B]
        return transitions.return_ + transitions.discount * bootstrap

    def _soft_targets(self, transitions: Transitions) -> Tensor:
        """Return Munchausen's returns [N', B]; of n actions the first one's log-probability counts, as in BTR."""
        options = self._options
        temperature = options.munchausen_temperature
        values = self._target_quantiles(transitions.obs).mean(0)  # [B, A]
        bonus = munchausen_bonus(values, transitions.action, options.munchausen, temperature, options.munchausen_clip)
        bootstrap = soft_quantiles(self._target_quantiles(transitions.next_obs), temperature)  # [N', B]
        return transitions.return_ + bonus + transitions.discount * bootstrap

    def _target_quantiles(self, obs: Tensor) -> Tensor:
        """Return N' quantiles [N', B, A] of the target network."""
        taus = self.sample_taus(self._options.num_tau_prime_samples, len(obs))  # [N', B]
        quantiles: Tensor = self.target(obs, taus, self.noisy(self.target))
        return quantiles

    def initial_losses(self, output: dict[str, Tensor], bootstrap: Tensor, ahead: NStep) -> Tensor:
        """Return the same loss between K quantiles; scaled to the learner's, which sums over N.

        Munchausen's terms are left out: acting has no target network.
        """
        options = self._options
        targets = ahead.return_ + ahead.discount * bootstrap.T  # [K, B]
        loss = quantile_huber_loss(output["chosen"].T, output["taus"].T, targets, options.kappa)
        return loss * (options.num_tau_samples / options.num_quantile_samples)

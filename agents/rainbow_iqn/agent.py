"""Rainbow-IQN (Toromanoff, Wirbel and Moutarde 2019, arXiv 1908.04683): Rainbow with IQN in the place of C51.

Implemented: implicit quantiles (Dabney et al. 2018, arXiv 1806.06923), double Q-learning on the mean of K quantiles,
duelling noisy weights, n-step returns, prioritised replay; by option, Munchausen's targets. Not
implemented: risk-sensitive policies.
Letters: N, N' quantiles of the online and the target network, K of the policy, B batch, E environments, A actions.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.beside import beside
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
        # Embeddings and their products with the features, with gradients for the online network's.
        samples = max(10 * options.num_tau_samples, 5 * options.num_tau_prime_samples) // 2
        self.head_bytes = samples * network.feature_bytes

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

    def target_pass(self, transitions: Transitions) -> Callable[[], Tensor]:
        """Begin to compute quantiles [N', B, A] at the bootstrap rows; for Munchausen, their soft values [N', B]."""
        options = self._options
        drawn = self._drawn(self.target, options.num_tau_prime_samples, len(transitions.action))

        def compute() -> Tensor:
            quantiles: Tensor = self.target(transitions.next_obs, *drawn)  # [N', B, A]
            return soft_quantiles(quantiles, options.munchausen_temperature) if options.munchausen else quantiles

        return beside(self._device, compute)

    def losses(self, transitions: Transitions, target: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
        """Return quantile Huber losses against returns that end with the target network's values."""
        options, batch = self._options, len(transitions.action)
        index = torch.arange(batch, device=self._device)
        best = None if options.munchausen else self._best_actions(transitions)
        taus, weights = self._drawn(self.network, options.num_tau_samples, batch)  # [N, B]
        self._ahead.go_on()
        outputs = self.network(transitions.obs, taus, weights)  # [N, B, A]
        quantiles = outputs[:, index, transitions.action]  # [N, B]
        rewards = transitions.return_  # [B]
        if best is None:
            # BTR's code takes the online network's values, too. This pass has them already; the paper of these targets
            # takes the target network's, which needs another.
            values = outputs.detach().mean(0)  # [B, A]
            share, temperature = options.munchausen, options.munchausen_temperature
            bonus = munchausen_bonus(values, transitions.action, share, temperature, options.munchausen_clip)  # [B]
            rewards, bootstrap = rewards + bonus, target()  # [N', B]
        else:
            bootstrap = target()[:, index, best()]  # [N', B]
        returns = rewards + transitions.discount * bootstrap  # [N', B]
        return quantile_huber_loss(quantiles, taus, returns, options.kappa), quantiles.mean(0)

    def _drawn(self, network: QuantileNetwork, count: int, batch: int) -> tuple[Tensor, Weights]:
        """Draw quantile fractions [count, B], and the network's weights under noise of their own."""
        return self.sample_taus(count, batch), self.noisy(network)

    def _best_actions(self, transitions: Transitions) -> Callable[[], Tensor]:
        """Begin to choose the actions [B] of double Q at the bootstrap rows, by the online network."""
        options = self._options
        with torch.no_grad():
            drawn = self._drawn(self.network, options.num_quantile_samples, len(transitions.action))
        choose = partial(self.network.best_actions, transitions.next_obs, *drawn)
        # A pass with gradient iterates the spectral norm of the online network.
        return beside(self._device, choose, at_once=options.spectral_norm)

    def initial_losses(self, output: dict[str, Tensor], bootstrap: Tensor, ahead: NStep) -> Tensor:
        """Return the same loss between K quantiles; scaled to the learner's, which sums over N.

        Munchausen's terms are left out: they need the quantiles of all actions, and rows keep those of two.
        """
        options = self._options
        targets = ahead.return_ + ahead.discount * bootstrap.T  # [K, B]
        loss = quantile_huber_loss(output["chosen"].T, output["taus"].T, targets, options.kappa)
        return loss * (options.num_tau_samples / options.num_quantile_samples)

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
        """Begin to compute Munchausen's returns [N', B]; for double Q, quantiles [N', B, A] at the bootstrap rows."""
        options = self._options
        if options.munchausen:
            return beside(self._device, self._soft_targets(transitions))
        drawn = self._drawn(self.target, options.num_tau_prime_samples, len(transitions.action))
        return beside(self._device, partial(self.target, transitions.next_obs, *drawn))

    def losses(self, transitions: Transitions, target: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
        """Return quantile Huber losses against the target network's returns."""
        options, batch = self._options, len(transitions.action)
        index = torch.arange(batch, device=self._device)
        returns = target if options.munchausen else self._double_targets(transitions, target)
        taus, weights = self._drawn(self.network, options.num_tau_samples, batch)  # [N, B]
        self._ahead.go_on()
        quantiles = self.network(transitions.obs, taus, weights)[:, index, transitions.action]  # [N, B]
        return quantile_huber_loss(quantiles, taus, returns(), options.kappa), quantiles.mean(0)

    def _drawn(self, network: QuantileNetwork, count: int, batch: int) -> tuple[Tensor, Weights]:
        """Draw quantile fractions [count, B], and the network's weights under noise of their own."""
        return self.sample_taus(count, batch), self.noisy(network)

    def _double_targets(self, transitions: Transitions, target: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Begin to choose actions by the online network, and return what gives their returns [N', B]."""
        options, batch = self._options, len(transitions.action)
        with torch.no_grad():
            drawn = self._drawn(self.network, options.num_quantile_samples, batch)
        choose = partial(self.network.best_actions, transitions.next_obs, *drawn)
        # A pass with gradient iterates the spectral norm of the online network.
        best = beside(self._device, choose, at_once=options.spectral_norm)  # [B]

        def returns() -> Tensor:
            bootstrap = target()[:, torch.arange(batch, device=self._device), best()]  # [N', B]
            return transitions.return_ + transitions.discount * bootstrap

        return returns

    def _soft_targets(self, transitions: Transitions) -> Callable[[], Tensor]:
        """Draw, and return what computes Munchausen's returns [N', B] by the target network alone.

        Of n actions the first one's log-probability counts, as in BTR.
        """
        options, batch = self._options, len(transitions.action)
        now, then = (self._drawn(self.target, options.num_tau_prime_samples, batch) for _ in range(2))

        def compute() -> Tensor:
            share, temperature = options.munchausen, options.munchausen_temperature
            values = self.target(transitions.obs, *now).mean(0)  # [B, A]
            bonus = munchausen_bonus(values, transitions.action, share, temperature, options.munchausen_clip)  # [B]
            bootstrap = soft_quantiles(self.target(transitions.next_obs, *then), temperature)  # [N', B]
            return transitions.return_ + bonus + transitions.discount * bootstrap

        return compute

    def initial_losses(self, output: dict[str, Tensor], bootstrap: Tensor, ahead: NStep) -> Tensor:
        """Return the same loss between K quantiles; scaled to the learner's, which sums over N.

        Munchausen's terms are left out: acting has no target network.
        """
        options = self._options
        targets = ahead.return_ + ahead.discount * bootstrap.T  # [K, B]
        loss = quantile_huber_loss(output["chosen"].T, output["taus"].T, targets, options.kappa)
        return loss * (options.num_tau_samples / options.num_quantile_samples)

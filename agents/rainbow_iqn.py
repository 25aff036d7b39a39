"""Rainbow-IQN (Toromanoff, Wirbel and Moutarde 2019, arXiv 1908.04683): Rainbow with IQN in the place of C51.

Implemented: implicit quantiles (Dabney et al. 2018, arXiv 1806.06923), double Q-learning on the mean of K quantiles,
duelling noisy weights, n-step returns, prioritised replay. Not implemented: risk-sensitive policies.
Letters: N, N' quantiles of the online and the target network, K of the policy, B batch, E environments, A actions.
"""

import torch
from torch import Tensor

from agents.networks import QuantileNetwork, Weights
from agents.ops.n_step import NStep
from agents.ops.quantile import quantile_huber_loss
from agents.q_learning import PolicyOutput, QLearningAgent, Transitions, network_spec
from args import Args
from memory.chunk import Field


class RainbowIqn(QLearningAgent):
    """The agent of `--rainbow-only 0`."""

    network: QuantileNetwork
    target: QuantileNetwork

    def __init__(
        self, args: Args, observation: Field, nb_actions: int, generator: torch.Generator, *, learns: bool
    ) -> None:
        spec = network_spec(args, observation, nb_actions, generator.device)
        network = QuantileNetwork(spec, args.quantile_embedding_dim)
        target = QuantileNetwork(spec, args.quantile_embedding_dim) if learns else None
        super().__init__(args, network, target, generator, (args.lr_IQN, args.adam_eps_IQN))
        self.priority_exponent = args.priority_exponent_IQN

    def policy_output(self, stack: Tensor, weights: Weights) -> PolicyOutput:
        """Quantiles at K random fractions."""
        taus = self.sample_taus(self._args.num_quantile_samples, len(stack))  # [K, E]
        quantiles = self.network(stack, taus, weights)  # [K, E, A]
        return PolicyOutput(quantiles.mean(0), quantiles.permute(1, 2, 0), {"taus": taus.T})

    def losses(self, transitions: Transitions) -> tuple[Tensor, Tensor]:
        """Quantile Huber losses against the target network, for actions that the online network chooses."""
        args, batch = self._args, len(transitions.action)
        index = torch.arange(batch, device=self._device)
        with torch.no_grad():
            taus = self.sample_taus(args.num_quantile_samples, batch)  # [K, B]
            best = self.network.best_actions(transitions.next_obs, taus, self.noisy(self.network))  # [B]
            taus = self.sample_taus(args.num_tau_prime_samples, batch)  # [N', B]
            bootstrap = self.target(transitions.next_obs, taus, self.noisy(self.target))[:, index, best]  # [N', B]
            targets = transitions.return_ + transitions.discount * bootstrap  # [N', B]
        taus = self.sample_taus(args.num_tau_samples, batch)  # [N, B]
        quantiles = self.network(transitions.obs, taus, self.noisy(self.network))[
            :, index, transitions.action
        ]  # [N, B]
        return quantile_huber_loss(quantiles, taus, targets, args.kappa), quantiles.mean(0)

    def initial_losses(self, output: dict[str, Tensor], bootstrap: Tensor, ahead: NStep) -> Tensor:
        """The same loss between K quantiles; scaled to the learner's, which sums over N."""
        args = self._args
        targets = ahead.return_ + ahead.discount * bootstrap.T  # [K, B]
        loss = quantile_huber_loss(output["chosen"].T, output["taus"].T, targets, args.kappa)
        return loss * (args.num_tau_samples / args.num_quantile_samples)

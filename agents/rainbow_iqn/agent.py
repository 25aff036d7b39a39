"""Rainbow-IQN (Toromanoff, Wirbel and Moutarde 2019, arXiv 1908.04683): Rainbow with IQN in the place of C51.

Implemented: implicit quantiles (Dabney et al. 2018, arXiv 1806.06923), double Q-learning on the mean of K quantiles,
duelling noisy weights, n-step returns, prioritised replay; by option, Munchausen's targets. Not
implemented: risk-sensitive policies.
Letters: N, N' (or M) quantiles of the online and the target network, K of the policy, B batch, E environments, A
actions.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import huber_loss

from rainbow_iqn_apex.agents.devices import beside
from rainbow_iqn_apex.agents.interface import Setup
from rainbow_iqn_apex.agents.networks.duelling import QuantileNetwork, Weights
from rainbow_iqn_apex.agents.ops.n_step import NStep
from rainbow_iqn_apex.agents.ops.shapes import check_shapes
from rainbow_iqn_apex.agents.policy import Inspection
from rainbow_iqn_apex.agents.q_learning.agent import PolicyOutput, QLearningAgent, network_spec
from rainbow_iqn_apex.agents.rainbow_iqn.options import RainbowIqnOptions
from rainbow_iqn_apex.memory.batch import Transitions


def munchausen_bonus(values: Tensor, action: Tensor, alpha: float, temperature: float, lowest: float) -> Tensor:
    """Compute α · clip(τ log π(a|s), l₀, 0), which is added to the reward of an action.

    Munchausen reinforcement learning (Vieillard, Pietquin and Geist 2020, arXiv 2007.14430), with quantiles:
    π(·|s) = softmax(q(s, ·) / τ) is the policy of a network's values q, the means of its quantiles.
    It is [B], of values q(s, ·) [B, A] and actions a [B] int64, with α in [0, 1], τ > 0 and l₀ <= 0.
    """
    check_shapes(values=(values, "B A"), action=(action, "B"))
    log_policy = scaled_log_policy(values, temperature).gather(1, action.unsqueeze(1)).squeeze(1)  # [B]
    return alpha * log_policy.clamp(lowest, 0)


def soft_quantiles(quantiles: Tensor, temperature: float) -> Tensor:
    """Compute Σ_a π(a|s) (z(s, a) - τ log π(a|s)) for each quantile z; for τ -> 0 those of the best action.

    It is [N, B], of quantiles [N, B, A] and the temperature τ > 0.
    """
    check_shapes(quantiles=(quantiles, "N B A"))
    log_policy = scaled_log_policy(quantiles.mean(0), temperature)  # [B, A]
    return ((log_policy / temperature).exp() * (quantiles - log_policy)).sum(2)


def scaled_log_policy(values: Tensor, temperature: float) -> Tensor:
    """Return τ log π(·|s) [B, A] of values [B, A], finite for any temperature."""
    return temperature * torch.log_softmax(values / temperature, 1)


def quantile_huber_loss(quantiles: Tensor, taus: Tensor, targets: Tensor, kappa: float) -> Tensor:
    """Compute IQN's loss of each sample (equation 3, with its Huber quantile ρ): sum over N, mean over M.

        Σ_{i=1..N} 1/M Σ_{j=1..M} |τ_i − 1{δ_ij < 0}| · huber_κ(δ_ij) / κ,    δ_ij = targets_j − quantiles_i

    Gradients flow into `quantiles` alone.

    Args:
        quantiles: [N, B] float, Z_{τ_i}(s_t, a_t).
        taus: [N, B] float in [0, 1], the τ_i at which they were computed.
        targets: [M, B] float, R + discount · Z_{τ'_j}(s_{t+m}, a*).
        kappa: κ > 0, where the Huber loss turns from quadratic to linear.

    Returns:
        [B], not weighted.

    Raises:
        ValueError: the shapes do not fit, or κ is not positive.
    """
    check_shapes(quantiles=(quantiles, "N B"), taus=(taus, "N B"), targets=(targets, "M B"))
    if not kappa > 0:
        raise ValueError(f"kappa must be positive, not {kappa}")
    pairs = (len(quantiles), *targets.shape)
    # Views, not copies: autograd keeps these two for the backward pass, and not the differences.
    online = quantiles.unsqueeze(1).expand(pairs)  # [N, M, B]
    target = targets.detach().unsqueeze(0).expand(pairs)  # [N, M, B]
    tau = taus.detach().unsqueeze(1)  # [N, 1, B]
    weight = torch.where(target < online, 1 - tau, tau)  # [N, M, B]
    loss = weight * huber_loss(online, target, reduction="none", delta=kappa)  # [N, M, B]
    return loss.mean(1).sum(0) / kappa  # [B]


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
        options = self._options
        batch = len(transitions.action)
        index = torch.arange(batch, device=self._device)
        best = None if options.munchausen else self._best_actions(transitions)
        taus, weights = self._drawn(self.network, options.num_tau_samples, batch)  # [N, B]
        self.begin_next()
        outputs = self.network(transitions.obs, taus, weights)  # [N, B, A]
        quantiles = outputs[:, index, transitions.action]  # [N, B]
        rewards = transitions.return_  # [B]
        if best is None:
            # BTR's code takes the online network's values, too. This pass has them already; the paper of these targets
            # takes the target network's, which needs another.
            values = outputs.detach().mean(0)  # [B, A]
            share = options.munchausen
            temperature = options.munchausen_temperature
            bonus = munchausen_bonus(values, transitions.action, share, temperature, options.munchausen_clip)  # [B]
            rewards = rewards + bonus  # [B]
            bootstrap = target()  # [N', B]
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

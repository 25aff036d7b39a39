"""Rainbow (Hessel et al. 2018, arXiv 1710.02298), with the settings of the Rainbow-IQN paper (arXiv 1908.04683).

Implemented: C51 (Bellemare et al. 2017, arXiv 1707.06887), double Q-learning, duelling noisy weights, n-step returns,
prioritised replay. Letters: B batch, E environments, A actions.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.beside import beside
from rainbow_iqn_apex.agents.interface import Setup
from rainbow_iqn_apex.agents.networks.duelling import CategoricalNetwork, Weights
from rainbow_iqn_apex.agents.ops.categorical import cross_entropy, project
from rainbow_iqn_apex.agents.ops.n_step import NStep
from rainbow_iqn_apex.agents.policy import Inspection
from rainbow_iqn_apex.agents.q_learning.agent import PolicyOutput, QLearningAgent, network_spec
from rainbow_iqn_apex.agents.rainbow.options import RainbowOptions
from rainbow_iqn_apex.memory.batch import Transitions


class Rainbow(QLearningAgent):
    """The agent of `--agent rainbow`."""

    network: CategoricalNetwork
    target: CategoricalNetwork

    def __init__(self, setup: Setup) -> None:
        options = setup.own
        assert isinstance(options, RainbowOptions)
        spec = network_spec(setup, options)
        network = CategoricalNetwork(spec, options.atoms)
        target = CategoricalNetwork(spec, options.atoms) if setup.learns else None
        super().__init__(setup, options, network, target, (options.lr_Rainbow, options.adam_eps_Rainbow))
        self.priority_exponent = options.priority_exponent_Rainbow
        self.head_bytes = 3 * 4 * options.atoms**2  # the projection's shares of atoms in atoms
        self._support = torch.linspace(options.V_min, options.V_max, options.atoms, device=self._device)

    def policy_output(self, stack: Tensor, weights: Weights) -> PolicyOutput:
        """Return log-probabilities of the atoms."""
        log_probabilities = self.network(stack, weights)  # [E, A, atoms]
        return PolicyOutput((log_probabilities.exp() * self._support).sum(2), log_probabilities, {})

    def inspection(self, stack: Tensor, weights: Weights) -> Inspection:
        """Return the atoms' probabilities."""
        output = self.policy_output(stack, weights)
        parts = (output.values[0], self._support, output.distribution[0].exp())
        mean, places, curves = (part.cpu().numpy() for part in parts)
        return Inspection("atoms", mean, None, places, curves)

    def target_pass(self, transitions: Transitions) -> Callable[[], Tensor]:
        """Begin to compute log-probabilities [B, A, atoms] at the bootstrap rows."""
        weights = self.noisy(self.target)
        return beside(self._device, partial(self.target, transitions.next_obs, weights))

    def losses(self, transitions: Transitions, target: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
        """Return cross-entropies with the projected target of the action that the online network chooses."""
        index = torch.arange(len(transitions.action), device=self._device)
        with torch.no_grad():
            chooses = self.noisy(self.network)

        def choose() -> Tensor:
            online = self.network(transitions.next_obs, chooses)  # [B, A, atoms]
            chosen: Tensor = (online.exp() * self._support).sum(2).argmax(1)  # [B]
            return chosen

        # A pass with gradient iterates the spectral norm of the online network.
        best = beside(self._device, choose, at_once=self._options.spectral_norm)
        weights = self.noisy(self.network)
        self._ahead.go_on()
        log_probabilities = self.network(transitions.obs, weights)[index, transitions.action]  # [B, atoms]
        values = (log_probabilities.exp() * self._support).sum(1)  # [B]
        bootstrap = target()[index, best()].exp()  # [B, atoms]
        returns = project(self._support, bootstrap, transitions.return_, transitions.discount)  # [B, atoms]
        return cross_entropy(returns, log_probabilities), values

    def initial_losses(self, output: dict[str, Tensor], bootstrap: Tensor, ahead: NStep) -> Tensor:
        """Return the same loss with the acting network in the target's place."""
        target = project(self._support.cpu(), bootstrap.exp(), ahead.return_, ahead.discount)
        return cross_entropy(target, output["chosen"])

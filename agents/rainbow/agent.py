"""Rainbow (Hessel et al. 2018, arXiv 1710.02298), with the settings of the Rainbow-IQN paper (arXiv 1908.04683).

Implemented: C51 (Bellemare et al. 2017, arXiv 1707.06887), double Q-learning, duelling noisy weights, n-step returns,
prioritised replay. Letters: B batch, E environments, A actions; of a distribution, A atoms.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.devices import beside
from rainbow_iqn_apex.agents.interface import Setup
from rainbow_iqn_apex.agents.networks.duelling import CategoricalNetwork, Weights
from rainbow_iqn_apex.agents.ops.n_step import NStep
from rainbow_iqn_apex.agents.ops.shapes import check_shapes
from rainbow_iqn_apex.agents.policy import Inspection
from rainbow_iqn_apex.agents.q_learning.agent import PolicyOutput, QLearningAgent, network_spec
from rainbow_iqn_apex.agents.rainbow.options import RainbowOptions
from rainbow_iqn_apex.memory.batch import Transitions


def project(support: Tensor, probabilities: Tensor, return_: Tensor, discount: Tensor) -> Tensor:
    """Project the distribution of return_ + discount · Z back onto the support of Z (algorithm 1, equation 7).

    Every atom's mass goes to the two atoms nearest to where it lands, in proportion to their nearness; what lands
    outside the support goes to its end. Written as the hat function of equation 7 and not as the paper's additions at
    ⌊b⌋ and ⌈b⌉, which lose the mass of an atom that lands exactly on another (⌊b⌋ = ⌈b⌉ = b).

    Args:
        support: [A] float, evenly spaced and ascending, A >= 2.
        probabilities: [B, A] float, of Z at the bootstrap row.
        return_: [B] float, the n-step return.
        discount: [B] float, 0 at a true end.

    Returns:
        [B, A], without gradient; each row has the mass of its row in `probabilities`.

    Raises:
        ValueError: the shapes do not fit, or there is only one atom.
    """
    check_shapes(
        support=(support, "A"), probabilities=(probabilities, "B A"), return_=(return_, "B"), discount=(discount, "B")
    )
    if len(support) < 2:
        raise ValueError(f"a support needs at least two atoms, not {tuple(support.shape)}")
    steps = len(support) - 1
    width = (support[-1] - support[0]) / steps
    landed = return_.unsqueeze(1) + discount.unsqueeze(1) * support  # [B, A]
    position = ((landed - support[0]) / width).clamp(0, steps)  # [B, A] b in algorithm 1, counted in atoms
    atoms = torch.arange(len(support), dtype=support.dtype, device=support.device)  # [A]
    share = (1 - (position.unsqueeze(1) - atoms.unsqueeze(1)).abs()).clamp(min=0)  # [B, A to, A from]
    # A matrix product could be rounded to TF32 and would not conserve mass.
    return (share * probabilities.unsqueeze(1)).sum(2).detach()  # [B, A]


def cross_entropy(target_probabilities: Tensor, log_probabilities: Tensor) -> Tensor:
    """Compute −Σ_i m_i log p_i, the loss of each sample (last line of algorithm 1).

    It is [B], of the projected m [B, A], without gradient into it, and of log p(s_t, a_t) [B, A] as of log_softmax.
    """
    check_shapes(target_probabilities=(target_probabilities, "B A"), log_probabilities=(log_probabilities, "B A"))
    return -(target_probabilities.detach() * log_probabilities).sum(1)


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
        self.begin_next()
        log_probabilities = self.network(transitions.obs, weights)[index, transitions.action]  # [B, atoms]
        values = (log_probabilities.exp() * self._support).sum(1)  # [B]
        bootstrap = target()[index, best()].exp()  # [B, atoms]
        returns = project(self._support, bootstrap, transitions.return_, transitions.discount)  # [B, atoms]
        return cross_entropy(returns, log_probabilities), values

    def initial_losses(self, output: dict[str, Tensor], bootstrap: Tensor, ahead: NStep) -> Tensor:
        """Return the same loss with the acting network in the target's place."""
        target = project(self._support.cpu(), bootstrap.exp(), ahead.return_, ahead.discount)
        return cross_entropy(target, output["chosen"])

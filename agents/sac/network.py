"""The networks of SAC: a policy, which actors have, too, and two critics.

Observations that are numbers go through two hidden layers, in the critics beside the action (Haarnoja et al. 2018,
arXiv 1812.05905, appendix D). Pictures go through a core first, and with an LSTM all observations do: the policy's own,
and one that both critics share.
Letters: T rows, B batch, A actions or numbers of one, F features, P parameters of the policy's distribution.
"""

import torch
from torch import Tensor, nn

from rainbow_iqn_apex.agents.distributions.spec import PolicySpec
from rainbow_iqn_apex.agents.networks.core import Core, CoreSpec, Inputs, RecurrentState, action_numbers
from rainbow_iqn_apex.agents.networks.network import Network
from rainbow_iqn_apex.agents.networks.policy_head import PolicyHead
from rainbow_iqn_apex.memory.environment_spec import Box


class PolicyNetwork(Network):
    """Parameters of the policy's distribution, whose standard deviations depend on the state."""

    def __init__(self, spec: CoreSpec) -> None:
        super().__init__()
        self.core = Core(spec)
        self.policy = PolicyHead(self.core.nb_features, PolicySpec(spec.action), state_dependent_std=True)

    def forward(self, inputs: Inputs, recurrent: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Return parameters [T, B, P] and the recurrent state after the sequence."""
        features, recurrent = self.core(inputs, recurrent)
        return self.policy(features), recurrent


class TwinCritics(nn.Module):
    """Two estimates of the return and entropy that follow an action: of one given, or of all that can be chosen."""

    def __init__(self, spec: CoreSpec, hidden_size: int) -> None:
        super().__init__()
        observation = spec.torso.observation
        self._scale = observation.scale
        self.core = Core(spec) if spec.lstm or observation.is_picture else None
        features = self.core.nb_features if self.core else spec.torso.channels
        numbers, outputs = (spec.action.size, 1) if isinstance(spec.action, Box) else (0, action_numbers(spec.action))
        self.heads = nn.ModuleList(_mlp(features + numbers, hidden_size, outputs) for _ in range(2))

    def features(self, inputs: Inputs, recurrent: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Return what both critics see of rows, [T, B, F], and the recurrent state after them."""
        if self.core is None:
            return inputs.obs.flatten(2).float() * self._scale, ()
        found: tuple[Tensor, RecurrentState] = self.core(inputs, recurrent)
        return found

    def forward(self, features: Tensor, action: Tensor | None = None) -> Tensor:
        """Return the values [2, T, B] of actions [T, B, A] in [-1, 1]; without any those of all, [2, T, B, A]."""
        if action is None:
            return torch.stack([head(features) for head in self.heads])
        x = torch.cat((features, action), -1)  # [T, B, F + A]
        return torch.stack([head(x).squeeze(-1) for head in self.heads])


def _mlp(inputs: int, units: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU(), nn.Linear(units, outputs)
    )

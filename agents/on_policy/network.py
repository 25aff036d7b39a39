"""The network of the on-policy family: parameters of a policy's distribution, and the value of the state.

Pictures go through one torso for both, numbers through two layers of tanh for each (Andrychowicz et al. 2020, arXiv
2006.05990, section 3.2). With an LSTM both share it, and the torso before it.
Letters: T rows, B batch, S stack, P parameters, F features.
"""

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from rainbow_iqn_apex.agents.distributions import PolicySpec
from rainbow_iqn_apex.agents.networks.core import (
    POLICY_GAIN,
    VALUE_GAIN,
    Core,
    CoreSpec,
    Inputs,
    PolicyHead,
    RecurrentState,
)
from rainbow_iqn_apex.agents.networks.network import Network
from rainbow_iqn_apex.agents.networks.trunks import orthogonal
from rainbow_iqn_apex.agents.on_policy.statistics import Normaliser, PopArt


@dataclass(frozen=True)
class NetworkSpec:
    """Sizes of the network."""

    core: CoreSpec  # for numbers without an LSTM their shape and stack alone count
    mlp: int  # units of a hidden layer, for numbers
    policy: PolicySpec
    normalises: bool  # observations that are numbers
    popart: bool


class PolicyValueNetwork(Network):
    """Parameters and values of sequences of stacked observations, and the recurrent state after them."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        torso = spec.core.torso
        self.core: Core | None = None
        self.normaliser: Normaliser | None = None
        is_picture = torso.observation.is_picture
        if spec.normalises and not is_picture:
            self.normaliser = Normaliser(torso.observation)
            torso = replace(torso, observation=torso.observation._replace(dtype="float32"))  # as all that follows sees
        self._scale = torso.observation.scale
        if is_picture or spec.core.lstm:
            self.core = Core(replace(spec.core, torso=torso))
            orthogonal(self.core)
            features = self.core.nb_features
        else:
            inputs = torso.channels
            self.policy_body, self.value_body = _mlp(inputs, spec.mlp), _mlp(inputs, spec.mlp)
            features = spec.mlp
        self.policy = PolicyHead(features, spec.policy)
        orthogonal(self.policy, POLICY_GAIN)
        self.popart = PopArt(features) if spec.popart else None
        self.value = self.popart or nn.Sequential(nn.Linear(features, 1), nn.Flatten(-2))
        orthogonal(self.value, VALUE_GAIN)

    def forward(self, inputs: Inputs, recurrent: RecurrentState) -> tuple[Tensor, Tensor, RecurrentState]:
        """Return parameters [T, B, P], values [T, B] and the recurrent state after the sequence."""
        x, recurrent = self._seen(inputs, recurrent)
        if self.core is not None:
            return self.policy(x), self.value(x), recurrent
        T, B = x.shape[:2]
        rows = x.flatten(0, 1)  # [T * B, F], of which a layer costs less than of [T, B, F]
        parameters, value = self.policy(self.policy_body(rows)), self.value(self.value_body(rows))
        return parameters.view(T, B, -1), value.view(T, B), recurrent

    def act(self, inputs: Inputs, recurrent: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Return what acting needs: parameters [T, B, P] and the recurrent state after the sequence."""
        x, recurrent = self._seen(inputs, recurrent)
        return self.policy(x if self.core is not None else self.policy_body(x)), recurrent

    def _seen(self, inputs: Inputs, recurrent: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Return features [T, B, F] behind the core, or without one the stacks' numbers, and the recurrent state."""
        if self.normaliser is not None:
            inputs = inputs._replace(obs=self.normaliser(inputs.obs))
        if self.core is not None:
            found: tuple[Tensor, RecurrentState] = self.core(inputs, recurrent)
            return found
        return (inputs.obs.float() * self._scale).flatten(2), ()


def _mlp(inputs: int, units: int) -> nn.Sequential:
    layers = nn.Sequential(nn.Linear(inputs, units), nn.Tanh(), nn.Linear(units, units), nn.Tanh())
    orthogonal(layers)
    return layers


class Reference(nn.Module):
    """A copy of the network, replaced by the present one every `period` rounds."""

    def __init__(self, network: PolicyValueNetwork, period: int) -> None:
        super().__init__()
        self.network = copy.deepcopy(network).requires_grad_(False)
        self.register_buffer("rounds", torch.zeros((), dtype=torch.int64, device="cpu"))
        self._period = period

    @torch.no_grad()
    def forward(self, inputs: Inputs, recurrent: RecurrentState) -> Tensor:
        """Return its policy's parameters [T, B, P]; an LSTM goes on from the acting policy's recurrent state."""
        parameters: Tensor = self.network(inputs, recurrent)[0]
        return parameters

    def begin_round(self, network: PolicyValueNetwork) -> None:
        """Count a round that is learned from; the first reference is the policy that a run begins with."""
        rounds = self.get_buffer("rounds")
        if rounds % self._period == 0:
            self.network.load_state_dict(network.state_dict())
        rounds.add_(1)

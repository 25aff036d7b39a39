"""The networks of IMPALA. Letters: T rows of an unroll, B batch, A actions, F features."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from rainbow_iqn_apex.agents.networks.core import Core, CoreSpec, Inputs, RecurrentState
from rainbow_iqn_apex.agents.networks.network import Network

_EXPONENT_SPEED = 10.0  # of the learned weight of the entropy: exp(10 p)


class PolicyValue(NamedTuple):
    """Holds what the network computes of a sequence."""

    log_policy: Tensor  # [T, B, A] log-probabilities
    value: Tensor  # [T, B]
    features: Tensor  # [T, B, F] the layer before the heads
    recurrent: RecurrentState  # after the sequence


class PolicyValueNetwork(Network):
    """Logits of the policy and the value of the state."""

    def __init__(self, spec: CoreSpec, nb_actions: int) -> None:
        super().__init__()
        self.core = Core(spec)
        self.policy = nn.Linear(self.core.nb_features, nb_actions)
        self.value = nn.Linear(self.core.nb_features, 1)

    def forward(self, inputs: Inputs, recurrent: RecurrentState) -> PolicyValue:
        """Return policy, value and features of a sequence, and the recurrent state after it."""
        features, recurrent = self.core(inputs, recurrent)
        log_policy = functional.log_softmax(self.policy(features), 2)
        return PolicyValue(log_policy, self.value(features).squeeze(2), features, recurrent)


class EntropyCost(nn.Module):
    """The weight of the entropy, learned so that the entropy comes to a target."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.exponent = nn.Parameter(torch.tensor(start).clamp(min=1e-8).log() / _EXPONENT_SPEED)

    def forward(self) -> Tensor:
        """Return the present weight, 0-d."""
        return (_EXPONENT_SPEED * self.exponent).exp()

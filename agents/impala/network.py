"""The networks of IMPALA. Letters: T rows of an unroll, B batch, A actions, F features."""

from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional

from rainbow_iqn_apex.agents.networks.core import Core, CoreSpec, Inputs, RecurrentState
from rainbow_iqn_apex.agents.networks.network import Network
from rainbow_iqn_apex.agents.networks.policy_head import POLICY_GAIN, VALUE_GAIN
from rainbow_iqn_apex.agents.networks.trunks import orthogonal


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
        orthogonal(self.core)
        orthogonal(self.policy, POLICY_GAIN)
        orthogonal(self.value, VALUE_GAIN)

    def forward(self, inputs: Inputs, recurrent: RecurrentState) -> PolicyValue:
        """Return policy, value and features of a sequence, and the recurrent state after it."""
        features, recurrent = self.core(inputs, recurrent)
        log_policy = functional.log_softmax(self.policy(features), 2)
        return PolicyValue(log_policy, self.value(features).squeeze(2), features, recurrent)

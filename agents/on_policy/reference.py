"""An older policy of the same run, from which the present one may be kept from straying."""

import copy

import torch
from torch import Tensor, nn

from rainbow_iqn_apex.agents.networks.core import Inputs, RecurrentState
from rainbow_iqn_apex.agents.on_policy.network import PolicyValueNetwork


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

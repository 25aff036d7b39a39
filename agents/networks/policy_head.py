"""The last layer of a policy: from features to the parameters of a distribution."""

import torch
from torch import Tensor, nn

from rainbow_iqn_apex.agents.distributions.spec import PolicySpec
from rainbow_iqn_apex.memory.environment_spec import Box

LOWEST_LOG_STD, HIGHEST_LOG_STD = -5.0, 2.0
POLICY_GAIN, VALUE_GAIN = 0.01, 1.0  # of orthogonal first weights of the heads (Andrychowicz et al. 2020)


class PolicyHead(nn.Module):
    """Parameters [..., P] float32 of a `PolicySpec`'s distribution, from features [..., F].

    The standard deviations of a Box are learned numbers beside the network, which begin with 1, or with
    `state_dependent_std` outputs of it. These are bounded: log std = -5 + 3.5 (tanh(x) + 1), as in Yarats and
    Kostrikov's SAC (github.com/denisyarats/pytorch_sac). SAC's own clamp has no gradient that leads back from beyond
    a bound; tanh's grows small, but does not end at it.
    """

    def __init__(self, features: int, spec: PolicySpec, *, state_dependent_std: bool = False) -> None:
        super().__init__()
        numbers = spec.action.size if isinstance(spec.action, Box) else 0
        self._bounded = numbers if state_dependent_std else 0  # outputs that are logarithms of standard deviations
        free = numbers - self._bounded
        self.linear = nn.Linear(features, spec.nb_parameters - free)
        self.log_std = nn.Parameter(torch.zeros(free)) if free else None

    def forward(self, features: Tensor) -> Tensor:
        """Return parameters [..., P]."""
        output: Tensor = self.linear(features)  # [..., P], or [..., K] beside a log_std
        if self.log_std is not None:
            return torch.cat((output, self.log_std.expand_as(output)), -1)
        if self._bounded:
            mean, x = output.chunk(2, -1)  # [..., K] each
            half = (HIGHEST_LOG_STD - LOWEST_LOG_STD) / 2
            return torch.cat((mean, LOWEST_LOG_STD + half * (x.tanh() + 1)), -1)
        return output

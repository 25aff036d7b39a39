"""Which distribution a policy over an environment's actions is, and the sizes of what is recorded of it."""

import math
from dataclasses import dataclass

from torch import Tensor

from rainbow_iqn_apex.agents.distributions.discrete import Categorical, Categoricals
from rainbow_iqn_apex.agents.distributions.distribution import Distribution
from rainbow_iqn_apex.agents.distributions.normal import ClippedNormal, Normal, TanhNormal
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.environment_spec import ActionSpec, Box, Discrete, Field, MultiDiscrete

_NORMALS: dict[str, type[Normal]] = {"tanh-normal": TanhNormal, "clipped-normal": ClippedNormal}


def check_target_entropy(target: float, action: ActionSpec) -> None:
    """Raise UserError for an entropy [nats] that no policy over these actions can keep; 0 asks for none."""
    if not target or isinstance(action, Box):  # a density has any
        return
    counts = (action.count,) if isinstance(action, Discrete) else action.counts
    if target >= (most := sum(map(math.log, counts))):
        raise UserError(f"--target-entropy: must be below {most:.4g} nats, that of all actions alike, is {target}")


@dataclass(frozen=True)
class PolicySpec:
    """The kind of a policy's distribution."""

    action: ActionSpec
    box: str = "tanh-normal"  # or clipped-normal; ignored where actions are discrete

    @property
    def nb_parameters(self) -> int:
        """How many parameters P a distribution has."""
        match self.action:
            case Discrete(count):
                return count
            case MultiDiscrete(counts):
                return sum(counts)
            case Box(size):
                return 2 * size

    @property
    def parameters_field(self) -> Field:
        """How a row stores the parameters of the policy that acted."""
        return Field((self.nb_parameters,), "float32")

    def distribution(self, parameters: Tensor) -> Distribution:
        """Return the distribution of parameters [..., P] float32 or float64; raises ValueError for others."""
        match self.action:
            case Discrete(count):
                return Categorical(parameters, count)
            case MultiDiscrete(counts):
                return Categoricals(parameters, counts)
            case Box(size):
                return _NORMALS[self.box](parameters, size)

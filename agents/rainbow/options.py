"""The options of Rainbow."""

from dataclasses import dataclass
from typing import ClassVar

from rainbow_iqn_apex.agents.q_learning.options import QLearningOptions
from rainbow_iqn_apex.common.option import option
from rainbow_iqn_apex.options.agent_options import Preset


@dataclass(frozen=True)
class RainbowOptions(QLearningOptions):
    """Rainbow (--agent rainbow)"""

    CPU: ClassVar[Preset] = QLearningOptions.CPU | {"lr_Rainbow": (2.5e-4, "a short run needs larger steps")}

    atoms: int = option(51, "atoms of the value distribution", least=2, most=10_000, shared=True)
    V_min: float = option(-10.0, "lowest atom", shared=True, policy=True)
    V_max: float = option(10.0, "highest atom", shared=True, policy=True)
    priority_exponent_Rainbow: float = option(0.5, "omega: priority = loss^omega", least=0, shared=True)
    lr_Rainbow: float = option(6.25e-5, "Adam's learning rate", above=0)
    adam_eps_Rainbow: float = option(1.5e-4, "Adam's epsilon", above=0)

    def errors(self) -> list[str]:
        """Return what is wrong with the options together, one line each."""
        if self.V_min < self.V_max:
            return super().errors()
        return [*super().errors(), f"--V-min: must be below --V-max, {self.V_min} is not below {self.V_max}"]

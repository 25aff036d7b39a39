"""The options of REINFORCE."""

from dataclasses import dataclass
from typing import Any, ClassVar

from agents.options import AgentOptions, option


@dataclass(frozen=True)
class ReinforceOptions(AgentOptions):
    """REINFORCE (--agent reinforce)"""

    DEFAULTS: ClassVar[dict[str, Any]] = {"learn_start": 1, "memory_capacity": 1280, "weight_synchro_frequency": 640}

    hidden_size: int = option(64, "units of the hidden layer", above=0, most=10_000, shared=True, policy=True)
    unroll_length: int = option(
        40, "rows of a sequence, at whose end the value stands for all rewards to come", above=0
    )
    lr_REINFORCE: float = option(3e-3, "Adam's learning rate", above=0)

"""The options of REINFORCE."""

from dataclasses import dataclass
from typing import Any, ClassVar

from rainbow_iqn_apex.agents.sequence_options import layer_size, stochastic_evaluation
from rainbow_iqn_apex.common.option import option
from rainbow_iqn_apex.options.agent_options import AgentOptions, Preset


@dataclass(frozen=True)
class ReinforceOptions(AgentOptions):
    """REINFORCE (--agent reinforce)"""

    DEFAULTS: ClassVar[dict[str, Any]] = {"learn_start": 1, "memory_capacity": 1280, "weight_synchro_frequency": 640}

    CPU: ClassVar[Preset] = {
        "memory_capacity": (1280, "what is played in a round is learned from at its end"),
        "weight_synchro_frequency": (640, "agent steps of a round, and of an update"),
    }
    UNUSED: ClassVar[frozenset[str]] = frozenset(
        "history_length learn_start replay_frequency batch_size reward_scale reward_clip precision "
        "priority_weight final_priority_weight queue_size replay_device".split()
    )
    MAX_POLICY_LAG: ClassVar[int] = 0  # what is played is learned from before more is played
    WAITS_FOR_ROWS: ClassVar[bool] = True  # in its queue

    hidden_size: int = layer_size(64, "units of the hidden layer")
    unroll_length: int = option(
        40, "rows of a sequence, at whose end the value is bootstrapped from", above=0, most=10_000, shared=True
    )
    lr_REINFORCE: float = option(3e-3, "Adam's learning rate", above=0)
    stochastic: bool = stochastic_evaluation()

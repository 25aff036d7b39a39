"""The options of R2D2."""

from dataclasses import dataclass
from typing import Any, ClassVar

from rainbow_iqn_apex.agents.sequence_options import SequenceOptions, layer_size
from rainbow_iqn_apex.common.option import option
from rainbow_iqn_apex.options.agent_options import Preset


@dataclass(frozen=True)
class R2d2Options(SequenceOptions):
    """R2D2 (--agent r2d2)"""

    DEFAULTS: ClassVar[dict[str, Any]] = {
        "batch_size": 64,
        "discount": 0.997,
        "learn_start": 200_000,  # 5 000 sequences
        "memory_capacity": 4_000_000,  # 100 000 sequences
        "max_gradient_norm": 80.0,
        "priority_weight": 0.6,
        "final_priority_weight": 0.6,
    }

    CPU: ClassVar[Preset] = {
        "architecture": ("data-efficient", "576 features in the place of 3136"),
        "hidden_size": (256, "half the width"),
        "lstm_size": (128, "a quarter of the width"),
        "burn_in": (10, "a quarter of the rows, for which values are computed only to renew the state"),
        "sequence_length": (20, "a quarter of the rows"),
        "sequence_period": (10, "half of a sequence, as in the paper"),
        "batch_size": (16, "a quarter of the sequences"),
        "samples_per_insert": (2.0, "an update every 80 agent steps, each row is seen four times; krull rose faster"),
        "target_period": (200, "updates; a short run has few periods"),
        "lr_R2D2": (5e-4, "a short run needs larger steps"),
        "adam_eps_R2D2": (1.5e-4, "as for Rainbow"),
        "learn_start": (2000, "agent steps; learning begins within a minute"),
        "memory_capacity": (50_000, "1.3 GB of frames, as sequences overlap"),
        "nb_env_per_actor": (16, "one forward pass for all costs little more than one for one"),
    }
    REPLAYS: ClassVar[bool] = True
    UNUSED: ClassVar[frozenset[str]] = frozenset({"replay_frequency"})
    WAITS_FOR_ROWS: ClassVar[bool] = True

    hidden_size: int = layer_size(512, "features of an observation, and units of both heads' hidden layers")
    lstm_size: int = layer_size(512, "units of the LSTM")
    burn_in: int = option(
        40, "rows before those learned from, over which the state is made anew", least=0, most=10_000, shared=True
    )
    sequence_length: int = option(80, "rows learned from", above=0, most=10_000, shared=True)
    sequence_period: int = option(
        40, "rows from the start of a sequence to the next one's", above=0, most=10_000, shared=True
    )
    multi_step: int = option(5, "n of the n-step return [agent steps]", above=0, most=10_000, shared=True)
    samples_per_insert: float = option(
        0.75,
        "how often a sequence is sampled on average; updates wait for their insertions",
        above=0,
        most=1000,
        shared=True,
    )
    target_period: int = option(2500, "updates between target network updates", above=0)
    rescaling: bool = option(
        True,
        "rescale values by h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x, and clip no reward",
        shared=True,
        policy=True,
    )
    exploration_base: float = option(
        0.4,
        "environment i of N acts at random with probability base^(1 + 7 i / (N - 1)), a single one with base^4.5",
        above=0,
        most=1,
        shared=True,
    )
    priority_exponent_R2D2: float = option(
        0.9, "omega: priority = (0.9 largest + 0.1 mean |difference| of a sequence)^omega", least=0, shared=True
    )
    lr_R2D2: float = option(1e-4, "Adam's learning rate", above=0)
    adam_eps_R2D2: float = option(1e-3, "Adam's epsilon", above=0)

    @property
    def unused(self) -> frozenset[str]:
        """Return the options that have no use: no reward is clipped where values are rescaled."""
        return self.UNUSED | ({"reward_clip"} if self.rescaling else frozenset())

    def errors(self) -> list[str]:
        """Return what is wrong with the options together, one line each."""
        if self.sequence_period <= self.sequence_length:
            return []
        return [
            f"--sequence-period: must not exceed --sequence-length {self.sequence_length}, is {self.sequence_period}: "
            "rows between two sequences would never be learned from"
        ]

"""The options of SAC."""

from dataclasses import dataclass
from typing import Any, ClassVar

from rainbow_iqn_apex.agents.sequence_options import SequenceOptions, layer_size, stochastic_evaluation
from rainbow_iqn_apex.common.option import option
from rainbow_iqn_apex.options.agent_options import Preset


@dataclass(frozen=True)
class SacOptions(SequenceOptions):
    """SAC (--agent sac)"""

    DEFAULTS: ClassVar[dict[str, Any]] = {"batch_size": 64, "learn_start": 20_000}  # Christodoulou 2019, on Atari
    VECTORS: ClassVar[dict[str, Any]] = {
        "history_length": 1,
        "batch_size": 256,
        "learn_start": 5000,
        "replay_frequency": 1,
        "reward_clip": 0.0,
        "weight_synchro_frequency": 64,
        "memory_capacity": 1_000_000,
    }
    CPU: ClassVar[Preset] = {"architecture": ("data-efficient", "576 features of a picture in the place of 3136")}
    REPLAYS: ClassVar[bool] = True
    UNUSED: ClassVar[frozenset[str]] = frozenset({"priority_weight", "final_priority_weight"})
    WAITS_FOR_ROWS: ClassVar[bool] = True  # an update stands for the same number of steps without lockstep, too

    hidden_size: int = layer_size(256, "units of both hidden layers of policy and critics, and features of a picture")
    lstm_size: int = layer_size(
        0, "units of an LSTM in front of policy and critics, which then learn from sequences; 0: none", may_be_0=True
    )
    burn_in: int = option(
        20,
        "with an LSTM: rows before those learned from, over which its state is made anew",
        least=0,
        most=10_000,
        shared=True,
    )
    sequence_length: int = option(20, "with an LSTM: rows learned from", above=0, most=10_000, shared=True)
    sequence_period: int = option(
        20, "with an LSTM: rows from the start of a sequence to the next one's", above=0, most=10_000, shared=True
    )
    multi_step: int = option(1, "n of the n-step return [agent steps]", above=0, most=10_000, shared=True)
    target_rate: float = option(
        0.005, "share of the critics that the target critics take over at each update", above=0, most=1
    )
    entropy_share: float = option(
        0.98,
        "target entropy of a policy that chooses among A actions, in log A; of K numbers it is always -K nats",
        above=0,
        most=1,
    )
    hindsight: float = option(
        0.0,
        "in a goal environment: probability that a sampled transition has a goal that was reached later (the paper's: "
        "0.8); 0: off",
        least=0,
        most=1,
        shared=True,
    )
    lr_SAC: float = option(3e-4, "Adam's learning rate of policy, critics and temperature", above=0)
    stochastic: bool = stochastic_evaluation()

    def errors(self) -> list[str]:
        """Return what is wrong with the options together, one line each."""
        found = []
        if self.sequence_period > self.sequence_length:
            found.append(
                f"--sequence-period: must not exceed --sequence-length {self.sequence_length}, is "
                f"{self.sequence_period}: rows between two sequences would never be learned from"
            )
        if self.hindsight and (self.multi_step > 1 or self.lstm_size):
            found.append(
                "--hindsight: gives another goal to single transitions; leave out --multi-step and --lstm-size, or "
                "--hindsight"
            )
        return found

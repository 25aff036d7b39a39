"""The option that the agents of sequences share."""

from dataclasses import dataclass

from rainbow_iqn_apex.common.option import option
from rainbow_iqn_apex.options.agent_options import AgentOptions


@dataclass(frozen=True)
class SequenceOptions(AgentOptions):
    """networks that read sequences"""

    architecture: str = option(
        "shallow",
        "convolutions of pictures: shallow (DQN's), deep (IMPALA's, residual), deep-football (a fourth stack), or "
        "data-efficient (two)",
        choices=("shallow", "deep", "deep-football", "data-efficient"),
        shared=True,
        policy=True,
    )

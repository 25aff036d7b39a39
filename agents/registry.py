"""The agents by name: their options, and where their classes are. A new agent is one line here.

Imports no torch: an agent's class is imported when it is built, so that `--help` is quick.
"""

import importlib
from typing import TYPE_CHECKING, NamedTuple

from agents.impala.options import ImpalaOptions
from agents.on_policy.options import AwrOptions, PpoOptions, VmpoOptions, VpgOptions, VtraceOptions
from agents.options import AgentOptions
from agents.r2d2.options import R2d2Options
from agents.rainbow.options import RainbowOptions
from agents.rainbow_iqn.options import RainbowIqnOptions
from agents.reinforce.options import ReinforceOptions
from agents.sac.options import SacOptions

if TYPE_CHECKING:
    from agents.interface import Agent


class Entry(NamedTuple):
    """An agent."""

    options: type[AgentOptions]
    module: str
    name: str  # of the class in the module

    def load(self) -> "type[Agent]":
        """Import the agent's class."""
        agent: type[Agent] = getattr(importlib.import_module(self.module), self.name)
        return agent


AGENTS = {
    "rainbow_iqn": Entry(RainbowIqnOptions, "agents.rainbow_iqn.agent", "RainbowIqn"),
    "rainbow": Entry(RainbowOptions, "agents.rainbow.agent", "Rainbow"),
    "impala": Entry(ImpalaOptions, "agents.impala.agent", "Impala"),
    "r2d2": Entry(R2d2Options, "agents.r2d2.agent", "R2d2"),
    "sac": Entry(SacOptions, "agents.sac.agent", "Sac"),
    "ppo": Entry(PpoOptions, "agents.on_policy.agent", "OnPolicy"),
    "vmpo": Entry(VmpoOptions, "agents.on_policy.agent", "OnPolicy"),
    "awr": Entry(AwrOptions, "agents.on_policy.agent", "OnPolicy"),
    "vpg": Entry(VpgOptions, "agents.on_policy.agent", "OnPolicy"),
    "vtrace": Entry(VtraceOptions, "agents.on_policy.agent", "OnPolicy"),
    "reinforce": Entry(ReinforceOptions, "agents.reinforce.agent", "Reinforce"),
}

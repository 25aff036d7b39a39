"""The agents by name: their options, and where their classes are. A new agent is one line here.

Agents of other packages need no line: `--agent package.module:Class` names one, and so does an entry point of the group
`rainbow_iqn_apex.agents`. Imports no torch: an agent's class is imported when it is built, so that `--help` is quick.
"""

import importlib
from typing import TYPE_CHECKING, NamedTuple

from rainbow_iqn_apex.agents.impala.options import ImpalaOptions
from rainbow_iqn_apex.agents.on_policy.options import AwrOptions, PpoOptions, VmpoOptions, VpgOptions, VtraceOptions
from rainbow_iqn_apex.agents.pqn.options import PqnOptions
from rainbow_iqn_apex.agents.r2d2.options import R2d2Options
from rainbow_iqn_apex.agents.rainbow.options import RainbowOptions
from rainbow_iqn_apex.agents.rainbow_iqn.options import BtrOptions, RainbowIqnOptions
from rainbow_iqn_apex.agents.reinforce.options import ReinforceOptions
from rainbow_iqn_apex.agents.sac.options import SacOptions
from rainbow_iqn_apex.common import plugins
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.option import fault_of
from rainbow_iqn_apex.options.agent_options import AgentOptions

if TYPE_CHECKING:
    from rainbow_iqn_apex.agents.interface import Agent


GROUP = "rainbow_iqn_apex.agents"  # of entry points


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
    "rainbow_iqn": Entry(RainbowIqnOptions, "rainbow_iqn_apex.agents.rainbow_iqn.agent", "RainbowIqn"),
    "rainbow": Entry(RainbowOptions, "rainbow_iqn_apex.agents.rainbow.agent", "Rainbow"),
    "btr": Entry(BtrOptions, "rainbow_iqn_apex.agents.rainbow_iqn.agent", "RainbowIqn"),
    "impala": Entry(ImpalaOptions, "rainbow_iqn_apex.agents.impala.agent", "Impala"),
    "r2d2": Entry(R2d2Options, "rainbow_iqn_apex.agents.r2d2.agent", "R2d2"),
    "sac": Entry(SacOptions, "rainbow_iqn_apex.agents.sac.agent", "Sac"),
    "ppo": Entry(PpoOptions, "rainbow_iqn_apex.agents.on_policy.agent", "OnPolicy"),
    "vmpo": Entry(VmpoOptions, "rainbow_iqn_apex.agents.on_policy.agent", "OnPolicy"),
    "awr": Entry(AwrOptions, "rainbow_iqn_apex.agents.on_policy.agent", "OnPolicy"),
    "vpg": Entry(VpgOptions, "rainbow_iqn_apex.agents.on_policy.agent", "OnPolicy"),
    "vtrace": Entry(VtraceOptions, "rainbow_iqn_apex.agents.on_policy.agent", "OnPolicy"),
    "pqn": Entry(PqnOptions, "rainbow_iqn_apex.agents.pqn.agent", "Pqn"),
    "reinforce": Entry(ReinforceOptions, "rainbow_iqn_apex.agents.reinforce.agent", "Reinforce"),
}


def agent_names() -> tuple[str, ...]:
    """Return the names of all agents here and in installed packages."""
    return (*AGENTS, *plugins.offered(GROUP))


def find_agent(name: str) -> Entry:
    """Return the agent of this name; raises UserError if there is none, or if its module cannot be imported."""
    if name in AGENTS:
        return AGENTS[name]
    place = plugins.offered(GROUP).get(name, name)
    if not plugins.module_exists(place):
        raise UserError(
            f"--agent: expected {', '.join(agent_names())} or package.module:Class, got {name!r}"
            f"{plugins.searched(place)}"
        )
    found = plugins.load("--agent", place)
    options = getattr(found, "options_type", None)
    if not (isinstance(found, type) and isinstance(options, type) and issubclass(options, AgentOptions)):
        raise UserError(f"--agent: expected a class with options_type, derived from AgentOptions, got {place}")
    if fault := fault_of(options) or options.table_fault():
        raise UserError(f"--agent: {place}: {fault}")
    module, _, class_name = place.partition(":")
    return Entry(options, module, class_name)

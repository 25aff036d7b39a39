"""Makes an agent of the settings, on the device that they name."""

from typing import get_args

import torch

from rainbow_iqn_apex.agents.interface import Agent, BufferKind, EnvironmentSlot, Setup
from rainbow_iqn_apex.agents.networks.network import Network
from rainbow_iqn_apex.agents.ops.ranks import ALONE, Ranks
from rainbow_iqn_apex.agents.registry import find_agent
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.plugins import kept_settings
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.programs.machine import check_device, count_gpus


def select_device(args: Args, place: int = 0) -> torch.device:
    """Return the GPU that the options name, else the CPU; raises UserError for a GPU that does not exist.

    `place` numbers the learners of a machine: each has a GPU of its own, behind the one that the options name.
    """
    torch.backends.cudnn.enabled = not args.disable_cudnn
    if args.disable_cuda or not (args.gpu_number or count_gpus()):
        return torch.device("cpu")
    number = args.gpu_number + place
    check_device("--gpu-number", number, count_gpus())
    return torch.device("cuda", number)


def device_name(device: torch.device) -> str:
    """Return a device's name for records of runs: "cpu", or the model of the GPU."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def make_agent(
    args: Args, environment: EnvironmentSpec, device: torch.device, *, learns: bool, seed: int, ranks: Ranks = ALONE
) -> Agent:
    """Build the agent of the settings; `seed` fixes its initial weights and all that it draws."""
    torch.manual_seed(seed)
    generator = torch.Generator(device).manual_seed(seed)
    slot = EnvironmentSlot(max(0, args.id_actor) * args.nb_env_per_actor, args.nb_env)
    setup = Setup(args, args.own, environment, generator, learns, slot, args.agent, ranks)
    with kept_settings():
        agent = find_agent(args.agent).load()(setup)
    return _checked(args, agent)


def _checked(args: Args, agent: object) -> Agent:
    """Return an agent that has what its constructor must set; raises UserError for another."""
    name = args.agent
    if not isinstance(agent, Agent):
        raise UserError(f"--agent: {name} is not derived from Agent (agents/interface.py)")
    for attribute, kind in (("spec", ChunkSpec), ("generator", torch.Generator), ("parts", dict)):
        if not isinstance(getattr(agent, attribute, None), kind):
            raise UserError(f"--agent: {name} sets no {attribute}, a {kind.__name__}, in its constructor")
    if not isinstance(agent.parts.get("model"), Network):
        raise UserError(f"--agent: {name} has no parts['model'] that is a Network (agents/networks/network.py)")
    if "generator" not in agent.parts:
        raise UserError(f"--agent: {name} has no parts['generator'], so a resumed run would draw other numbers")
    if agent.buffer not in (kinds := get_args(BufferKind)):
        raise UserError(f"--agent: {name} has the buffer {agent.buffer!r}; choose from {', '.join(kinds)}")
    if agent.spec.state and agent.spec.burn_in and not args.own.MAX_POLICY_LAG:
        raise UserError(f"--agent: {name} has a state and burn-in, but MAX_POLICY_LAG 0 ends chunks with rounds")
    return agent

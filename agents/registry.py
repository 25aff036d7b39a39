"""The agents by name. A new agent is one file and one line here."""

from collections.abc import Callable

import torch

from agents.interface import Agent
from agents.rainbow import Rainbow
from agents.rainbow_iqn import RainbowIqn
from args import Args
from memory.chunk import Field

AGENTS: dict[str, Callable[..., Agent]] = {
    "rainbow_iqn": RainbowIqn,
    "rainbow": Rainbow,
}


def make_agent(
    args: Args, observation: Field, nb_actions: int, device: torch.device, *, learns: bool, seed: int
) -> Agent:
    """Build the agent of `args`; `seed` fixes its initial weights and all that it draws."""
    torch.manual_seed(seed)
    generator = torch.Generator(device).manual_seed(seed)
    return AGENTS[args.agent](args, observation, nb_actions, generator, learns=learns)

"""Generators of random numbers that snapshots hold, and random actions in the place of greedy ones."""

import torch
from torch import Tensor

# The share of random actions in evaluations of policies that are greedy and without noise, as Dopamine's: one that
# always does the same may wait for ever, on breakout for a ball that it has not served.
EVALUATION_EPSILON = 0.001


def explored(greedy: Tensor, epsilon: Tensor | float, nb_actions: int, generator: torch.Generator) -> Tensor:
    """Return the greedy actions [E], or with probability epsilon, [E] or one for all, random ones in their place."""
    random = torch.randint(nb_actions, greedy.shape, generator=generator, device=greedy.device)
    is_random = torch.rand(greedy.shape, generator=generator, device=greedy.device) < epsilon
    return torch.where(is_random, random, greedy)


def ladder(places: Tensor, nb_env: int, first: float, last: float) -> Tensor:
    """Return shares [E] float64 at places [E] int64 among N environments: first^(1 - s) last^s, s = i / (N - 1).

    A single environment has the middle, s = 0.5. So the shares are spread evenly on a logarithmic scale, as Ape-X's
    (Horgan et al. 2018, arXiv 1803.00933).
    """
    i = places.double()
    s = i / (nb_env - 1) if nb_env > 1 else torch.full_like(i, 0.5)
    shares: Tensor = first ** (1 - s) * last**s
    return shares


class RandomState:
    """A generator that snapshots hold."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the generator's state."""
        return {"state": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        """Go on where a snapshot was taken."""
        restore_generator(self.generator, state["state"])


def restore_generator(generator: torch.Generator, state: torch.Tensor) -> None:
    """Go on drawing where a snapshot was taken, unless that was on another kind of device."""
    if len(state) == len(generator.get_state()):
        generator.set_state(state.cpu())
    else:
        print(f"Random numbers begin anew: the snapshot's are not those of {generator.device}", flush=True)

"""Mean and variance of all that was seen, in parts that are merged exactly (Welford 1962; Chan et al. 1979).

The learner observes the rows of each round, which come from the actors' logs exactly once, and merges them into what it
has: the order of actors and the size of rounds change nothing but rounding.
"""

from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.ops import FIRST
from rainbow_iqn_apex.agents.ops.ranks import ALONE, Ranks
from rainbow_iqn_apex.agents.ops.shapes import check_shapes

_LEAST_VARIANCE = 1e-8


class Moments(NamedTuple):
    """Statistics of some numbers, all float64."""

    samples: Tensor  # []
    mean: Tensor  # [...]
    deviation: Tensor  # [...] sum of squared differences from the mean


def moments(numbers: Tensor, kept: Tensor) -> Moments:
    """Return the moments [...] of numbers [N, ...] of any dtype, of those that kept [N] bool marks.

    Raises:
        ValueError: the shapes do not fit.
    """
    check_shapes(numbers=(numbers, "N ..."), kept=(kept, "N"))
    counts = kept.view(-1, *[1] * (numbers.dim() - 1))  # [N, 1...]
    count = kept.sum().double()
    numbers = torch.where(counts, numbers.double(), 0)  # [N, ...]
    mean = numbers.sum(0) / count.clamp(min=1)  # [...]
    return Moments(count, mean, torch.where(counts, numbers - mean, 0).square().sum(0))


def merged(a: Moments, b: Moments) -> Moments:
    """Return the moments of two disjoint parts together (Chan, Golub and LeVeque 1979)."""
    count = a.samples + b.samples
    share = b.samples / count.clamp(min=1)
    apart = b.mean - a.mean  # [...]
    return Moments(count, a.mean + apart * share, a.deviation + b.deviation + apart.square() * a.samples * share)


def moments_of_all(numbers: Tensor, kept: Tensor, ranks: Ranks) -> Moments:
    """Return the moments of the numbers of all ranks together; arguments as of `moments`."""
    own = moments(numbers, kept)
    if ranks.size == 1:
        return own
    sizes = [part.numel() for part in own]
    gathered = [part.split_with_sizes(sizes) for part in ranks.gather(torch.cat([part.flatten() for part in own]))]
    return reduce(merged, (Moments(*map(torch.Tensor.view_as, part, own)) for part in gathered))


class RunningStatistics:
    """Statistics of observations, or of discounted rewards; on the CPU."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        zeros = torch.zeros(shape, dtype=torch.float64)
        self._moments = Moments(torch.zeros((), dtype=torch.float64), zeros, zeros.clone())

    @property
    def mean(self) -> Tensor:
        """The mean [...] float64; 0 before anything was observed."""
        return self._moments.mean

    @property
    def variance(self) -> Tensor:
        """The variance [...] float64 of what was observed; 1 before anything was."""
        samples, _, deviation = self._moments
        return deviation / samples if samples else torch.ones_like(deviation)

    @property
    def scale(self) -> Tensor:
        """The factor [...] float64 that brings what was observed to deviation 1; 1 before anything was."""
        return (self.variance + _LEAST_VARIANCE).rsqrt()

    def observe(self, numbers: Tensor, ranks: Ranks = ALONE) -> None:
        """Take in numbers [N, ...] of any dtype of all ranks; raises ValueError for another shape."""
        if numbers.shape[1:] != self.mean.shape:
            raise ValueError(f"numbers {tuple(numbers.shape)} for statistics {tuple(self.mean.shape)}")
        kept = torch.ones(len(numbers), dtype=torch.bool)  # [N]
        self._moments = merged(self._moments, moments_of_all(numbers.cpu(), kept, ranks))

    def state_dict(self) -> dict[str, Tensor]:
        """Return the fields of `Moments`, float64."""
        return {name: tensor.clone() for name, tensor in self._moments._asdict().items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Go on from a state; raises ValueError if it is of another shape."""
        if state["mean"].shape != self.mean.shape:
            raise ValueError(f"a state {tuple(state['mean'].shape)} for statistics {tuple(self.mean.shape)}")
        self._moments = Moments(**{name: state[name].double().cpu().clone() for name in Moments._fields})


def discounted_reward(previous: Tensor, reward: Tensor, step_type: Tensor, gamma: float) -> Tensor:
    """Return gamma · previous + r_t [E], and 0 at FIRST: the sum whose deviation rewards are divided by.

    It looks back, as an actor can, and so it does not depend on how episodes end. Its values at FIRST are not to be
    observed: no reward arrives there (Andrychowicz et al. 2020, arXiv 2006.05990, take it from OpenAI's baselines).

    Args:
        previous: [E] float64, the last row's result; 0 at first.
        reward: [E] that arrived with the row.
        step_type: [E] uint8 of the row.
        gamma: the discount of an agent step.

    Raises:
        ValueError: the shapes differ.
    """
    check_shapes(previous=(previous, "E"), reward=(reward, "E"), step_type=(step_type, "E"))
    return torch.where(step_type == FIRST, 0, gamma * previous + reward)

"""Running statistics of all that a run has played, merged exactly (Welford 1962; Chan et al. 1979), and PopArt.

The learner takes each row into account exactly once, when it has learned from it: chunks come from the actors' logs, of
which none is read twice. The order of actors and the size of rounds change nothing but rounding. What actors need of
the statistics travels with the weights, so both sides normalise alike.
"""

from functools import reduce
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from rainbow_iqn_apex.agents.ops import FIRST
from rainbow_iqn_apex.agents.ops.ranks import ALONE, Ranks
from rainbow_iqn_apex.agents.ops.shapes import check_shapes
from rainbow_iqn_apex.memory.environment_spec import Field

MOST = 10.0  # of a normalised observation's numbers
_LEAST_VARIANCE = 1e-8
_LEAST, _LARGEST = 1e-4, 1e6  # of the scale of PopArt (Hessel et al. 2018)


class Moments(NamedTuple):
    """Statistics of some numbers, all float64."""

    samples: Tensor  # []
    mean: Tensor  # [...]
    deviation: Tensor  # [...] sum of squared differences from the mean


def moments(numbers: Tensor, kept: Tensor) -> Moments:
    """Return the moments [...] of numbers [N, ...] of any dtype, of those that kept [N] bool marks."""
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

    `previous` [E] float64 is the last row's result, 0 at first; `reward` [E] arrived with the row of `step_type` [E].
    """
    check_shapes(previous=(previous, "E"), reward=(reward, "E"), step_type=(step_type, "E"))
    return torch.where(step_type == FIRST, 0, gamma * previous + reward)


_BUFFERS = [f"target_{name}" for name in Moments._fields]


class PopArt(nn.Module):
    """PopArt: a linear value head whose values do not jump as the statistics of its targets are learned.

    van Hasselt et al. 2016, arXiv 1602.07714; Hessel et al. 2018, arXiv 1809.04474. Over features [..., F]:

        values = popart(features)                      # [...]
        popart.observe(targets, kept)                  # before the loss: the values stay, normalised ones do not
        loss = (popart.normalise(targets) - popart.normalise(popart(features)))²
        advantages = popart.scale_advantage(advantages)  # which the policy learns from

    All targets weigh the same (steps of 1/t), and not the newer ones more.
    Actors need `mean` and `std` alone.
    """

    OWN_BUFFERS: ClassVar[frozenset[str]] = frozenset(_BUFFERS)
    mean: Tensor
    std: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features, 1)
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("std", torch.ones(()))
        for name in _BUFFERS:
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    def forward(self, features: Tensor) -> Tensor:
        """Return values [...] in the targets' unit."""
        normalised: Tensor = self.linear(features).squeeze(-1)  # [...]
        return normalised * self.std + self.mean

    def normalise(self, values: Tensor) -> Tensor:
        """Return values or targets [...] in units of the statistics, in which the loss is computed."""
        return (values - self.mean) / self.std

    def scale_advantage(self, advantage: Tensor) -> Tensor:
        """Return advantages [...] in the same unit: differences of returns, so the mean is not subtracted."""
        return advantage / self.std

    @torch.no_grad()
    def observe(self, targets: Tensor, kept: Tensor, ranks: Ranks = ALONE) -> None:
        """Take in targets [...] where kept [...], and rewrite the head so that no value moves (algorithm 1).

        W' = W σ / σ', b' = (σ b + m - m') / σ'. Nothing kept changes nothing. The targets are those of all `ranks`.
        """
        before = Moments(*(self.get_buffer(name) for name in _BUFFERS))
        after = merged(before, moments_of_all(targets.flatten(), kept.flatten(), ranks))
        for old, new in zip(before, after, strict=True):
            old.copy_(new)
        variance = after.deviation / after.samples.clamp(min=1)
        std = torch.where(after.samples > 1, variance.sqrt().clamp(_LEAST, _LARGEST), 1).float()  # []
        mean = after.mean.float()  # []
        self.linear.weight.mul_(self.std / std)
        self.linear.bias.mul_(self.std).add_(self.mean - mean).div_(std)
        self.mean.copy_(mean)
        self.std.copy_(std)


class Normaliser(nn.Module):
    """Brings observations to mean 0 and deviation 1, as far as the learner has seen them, and into -10 to 10.

    Mean and scale are published and saved with the weights that were trained on them. Before the learner has seen
    anything, bytes are brought to fractions.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, observation: Field) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(observation.shape))
        self.register_buffer("scale", torch.full(observation.shape, observation.scale))

    def forward(self, obs: Tensor) -> Tensor:
        """Normalise observations [..., *shape], as the environment gives them."""
        return ((obs.float() - self.mean) * self.scale).clamp(-MOST, MOST)


class Statistics:
    """Statistics of observations [*shape], and of discounted returns, by whose deviation rewards are divided."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._observations = RunningStatistics(shape)
        self._returns = RunningStatistics(())

    def count(self, returns: Tensor, ranks: Ranks = ALONE) -> None:
        """Take discounted returns [N] of all ranks into account."""
        self._returns.observe(returns, ranks)

    def normalise(self, normaliser: Normaliser, obs: Tensor, ranks: Ranks = ALONE) -> None:
        """Take observations [N, *shape] of all ranks into account, and bring a network's normaliser up to date."""
        seen = self._observations
        seen.observe(obs, ranks)
        with torch.no_grad():
            normaliser.mean.copy_(seen.mean)
            normaliser.scale.copy_(seen.scale)

    def scaled(self, reward: Tensor) -> Tensor:
        """Return rewards [...] divided by the deviation of the discounted returns so far."""
        return reward * self._returns.scale.to(reward)

    def state_dict(self) -> dict[str, Any]:
        """Return both statistics."""
        return {"observations": self._observations.state_dict(), "returns": self._returns.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from both statistics."""
        self._observations.load_state_dict(state["observations"])
        self._returns.load_state_dict(state["returns"])

"""PopArt: a value head whose targets have mean 0 and variance 1, and whose values do not jump as these are learned.

van Hasselt et al. 2016, arXiv 1602.07714; Hessel et al. 2018, arXiv 1809.04474.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from rainbow_iqn_apex.agents.ops.ranks import ALONE, Ranks
from rainbow_iqn_apex.agents.ops.running_statistics import Moments, merged, moments_of_all

_LEAST, _LARGEST = 1e-4, 1e6  # of the scale (Hessel et al. 2018)
_BUFFERS = [f"target_{name}" for name in Moments._fields]


class PopArt(nn.Module):
    """A linear value head over features [..., F], with the statistics of all targets that it was given.

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

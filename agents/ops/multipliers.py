"""Regularisers: a quantity is charged at a price that is learned so that a bound holds.

A quantity is one number of a batch: minus the entropy, KL(π‖μ), KL(μ‖π), or KL to a reference policy.
"""

import math

import torch
from torch import Tensor, nn

from rainbow_iqn_apex.agents.ops.ranks import ALONE, Ranks

LEAST = 1e-8  # of a learned number that must be positive


class PositiveNumber(nn.Module):
    """A learned positive number exp(speed · p): a multiplier, or V-MPO's temperature."""

    def __init__(self, start: float, speed: float) -> None:
        super().__init__()
        self._speed = speed
        self.exponent = nn.Parameter(torch.tensor(math.log(max(start, LEAST)) / speed))

    def forward(self) -> Tensor:
        """Return the number [], with gradient."""
        return (self._speed * self.exponent).exp()


class Constraint(nn.Module):
    """Keeps a quantity at or below a bound, by a Lagrange multiplier α that grows while it is above.

    An entropy's lower bound is that of minus the entropy from above. SAC's temperature (Haarnoja et al. 2018, arXiv
    1812.05905, equation 18) is such a multiplier, of the mean log π with the bound dim(A).
    """

    def __init__(self, bound: float, start: float, speed: float = 10.0, ranks: Ranks = ALONE) -> None:
        """Begin with the multiplier `start`; `speed` is how fast it changes.

        The bound is for the quantity of all `ranks` together.
        """
        super().__init__()
        self._bound = bound
        self._ranks = ranks
        self.multiplier = PositiveNumber(start, speed)

    def price(self) -> Tensor:
        """Return the multiplier [], without gradient."""
        price: Tensor = self.multiplier().detach()
        return price

    def forward(self, quantity: Tensor) -> Tensor:
        """Return α · quantity - p (quantity - bound) []: the first part moves what is charged, the second α alone."""
        price = self.price()
        return price * quantity + self.pressure(quantity, price)

    def pressure(self, quantity: Tensor, price: Tensor) -> Tensor:
        """Return the second part [] alone, where something else charges the `price` of this moment.

        A multiplier of almost 0 does not shrink further, or it would not grow back in time.
        """
        excess = self._ranks.mean(quantity.detach()) - self._bound
        excess = torch.where(price > LEAST, excess, excess.clamp(min=0))
        return -self.multiplier.exponent * excess

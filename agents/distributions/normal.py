"""Policies over numbers in [-1, 1]: a normal distribution that is squashed by tanh, or clipped.

Parameters are K means and K logarithms of standard deviations. Raw samples are [..., K] before tanh or clip.
"""

import math
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from rainbow_iqn_apex.agents.distributions.distribution import Distribution, check_parameters

_LOG_ROOT_2_PI = 0.5 * math.log(2 * math.pi)


class Normal(Distribution):
    """K independent normal distributions, whose samples a subclass brings into [-1, 1]."""

    def __init__(self, parameters: Tensor, size: int) -> None:
        """Take means and logarithms of standard deviations [..., 2 K]; raises ValueError if K is not `size`."""
        check_parameters(parameters, 2 * size)
        self._mean, self._log_std = parameters.chunk(2, -1)  # [..., K] each

    def sample(self, generator: torch.Generator) -> Tensor:
        """Draw raw samples [..., K] without gradient."""
        return self.rsample(generator).detach()

    def rsample(self, generator: torch.Generator) -> Tensor:
        """Draw mean + std · noise [..., K], with gradient into both (Kingma and Welling 2014, arXiv 1312.6114)."""
        mean = self._mean
        noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)  # [..., K]
        return mean + self._log_std.exp() * noise

    def mode(self) -> Tensor:
        """Return the mean [..., K]; behind tanh it is the median, from which the mode differs."""
        return self._mean.detach()

    def quantiles(self, fractions: Tensor) -> Tensor:
        """Return quantiles of the actions [..., K, N] at fractions [N], exactly and without gradient.

        Neither tanh nor the clip changes the order of samples: an action's quantile is that of the raw sample, brought
        into [-1, 1].
        """
        deviations = torch.special.ndtri(fractions.to(self._mean))  # [N]
        raw = self._mean.unsqueeze(-1) + self._log_std.exp().unsqueeze(-1) * deviations  # [..., K, N]
        return self.to_action(raw.detach())

    def log_prob(self, raw: Tensor) -> Tensor:
        """Return the logarithm of the normal density at raw samples [...]."""
        deviation = (raw - self._mean) * (-self._log_std).exp()  # [..., K]
        terms = torch.addcmul(self._log_std, deviation, deviation, value=0.5)  # [..., K] less log √2π each
        return -deviation.shape[-1] * _LOG_ROOT_2_PI - terms.sum(-1)

    def entropy(self, generator: torch.Generator | None = None) -> Tensor:  # noqa: ARG002 - the normal's is exact
        """Return the entropy of the normal distribution [...]."""
        return (self._log_std + 0.5 + _LOG_ROOT_2_PI).sum(-1)

    def kl(self, other: Self) -> Tensor:
        """Return the divergence of the normal distributions [...]."""
        shift = (self._mean - other._mean) * (-other._log_std).exp()  # [..., K]
        log_ratio = self._log_std - other._log_std  # [..., K]
        return (0.5 * ((2 * log_ratio).expm1() + shift.square()) - log_ratio).sum(-1)


class TanhNormal(Normal):
    """tanh of a normal distribution (SAC, Haarnoja et al. 2018, arXiv 1812.05905, appendix C).

    KL is that of the normal distributions before tanh: a bijection leaves it as it is.
    """

    def to_action(self, raw: Tensor) -> Tensor:
        """Return tanh(raw) [..., K] as float32, with gradient."""
        return raw.tanh().float()

    def log_prob(self, raw: Tensor) -> Tensor:
        """Return log N(raw) - Σ log(1 - tanh² raw) [...], the density of the action tanh(raw)."""
        return super().log_prob(raw) - log_tanh_slope(raw).sum(-1)

    def entropy(self, generator: torch.Generator | None = None) -> Tensor:
        """Estimate the entropy [...] from one sample, without bias; there is no closed form.

        It is the normal's, which is exact, plus the mean of Σ log(1 - tanh² raw), for which the sample stands.

        Raises:
            ValueError: there is no generator to sample with.
        """
        if generator is None:
            raise ValueError("the entropy of a tanh-normal distribution is estimated: it needs a generator")
        return super().entropy() + log_tanh_slope(self.rsample(generator)).sum(-1)


class ClippedNormal(Normal):
    """A normal distribution whose samples are clipped to [-1, 1].

    Log-probability, entropy and KL are those of the normal distribution before clipping, for which raw samples are
    kept: the clip is a part of the environment. KL is an upper bound of that of the clipped actions.
    """

    def to_action(self, raw: Tensor) -> Tensor:
        """Return raw clipped to [-1, 1] [..., K] as float32; no gradient comes back from beyond."""
        return raw.clamp(-1, 1).float()


def log_tanh_slope(x: Tensor) -> Tensor:
    """Compute log(1 - tanh² x) as 2 (log 2 - x - softplus(-2 x)), of any shape.

    It is finite wherever x is. 1 - tanh² x itself is 0 in float32 from |x| = 9 on.
    """
    return 2 * (math.log(2) - x - functional.softplus(-2 * x))

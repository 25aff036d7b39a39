"""Policies as distributions over actions.

    # actor                                             # learner
    pi = spec.distribution(parameters)                  pi = spec.distribution(parameters)
    raw = pi.sample(generator)                          mu = spec.distribution(recorded parameters)
    play pi.to_action(raw), record parameters and raw   log_ratio = pi.log_prob(raw) - mu.log_prob(raw)

A network's head gives parameters [..., P]. An actor records them with each row: they are all that a loss needs of the
policy that acted. Letters: P parameters of a distribution, A actions, K choices or numbers of one action.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from rainbow_iqn_apex.agents.ops.shapes import check_shapes
from rainbow_iqn_apex.agents.policy import Inspection
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.environment_spec import ActionSpec, Box, Discrete, Field, MultiDiscrete

_LOG_ROOT_2_PI = 0.5 * math.log(2 * math.pi)
# The middle half and the middle nine tenths of the actions, around the median.
FRACTIONS = (0.05, 0.25, 0.5, 0.75, 0.95)


def kl_divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Compute KL(p‖q) = Σ_a p(a) (log p(a) - log q(a)) in nats (Kullback and Leibler 1951, 10.1214/aoms/1177729694).

    It is [...], at least 0 but for rounding, of normalised log-probabilities [..., A] of A actions, with gradient into
    both. Probabilities are those of a softmax: their logarithms are finite.
    """
    check_shapes(log_p=(log_p, "..."), log_q=(log_q, "..."))
    return (log_p.exp() * (log_p - log_q)).sum(-1)


class Distribution(ABC):
    """A policy at rows of any leading axes `...`; `raw` is a sample before it becomes the environment's action.

    Probabilities belong to raw samples. A clipped action, or one rounded to 1 by tanh, does not have its own.
    """

    @abstractmethod
    def sample(self, generator: torch.Generator) -> Tensor:
        """Draw raw samples without gradient, with a generator of the parameters' device."""

    @abstractmethod
    def mode(self) -> Tensor:
        """Return the raw samples that a policy without exploration takes, without gradient."""

    @abstractmethod
    def to_action(self, raw: Tensor) -> Tensor:
        """Return actions as a row stores them: int32 choices, or float32 numbers in [-1, 1]."""

    @abstractmethod
    def log_prob(self, raw: Tensor) -> Tensor:
        """Return the logarithm of the probability, or of the density, of raw samples [...]."""

    @abstractmethod
    def entropy(self, generator: torch.Generator) -> Tensor:
        """Return the entropy [...] in nats, with gradient; the generator is for those that must be estimated."""

    @abstractmethod
    def kl(self, other: Self) -> Tensor:
        """Return KL(self || other) [...] in nats, at least 0 but for rounding."""


def check_parameters(parameters: Tensor, count: int) -> None:
    """Check that parameters are [..., count] of float32 or float64.

    Raises:
        ValueError: the last axis has another size, or the dtype is a shorter one: three digits of a log-probability
            are not enough for the ratio of two policies.
    """
    if parameters.shape[-1:] != (count,) or parameters.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"parameters {tuple(parameters.shape)} of {parameters.dtype} for [..., {count}] of float32")


class Categorical(Distribution):
    """One choice among A actions. Raw samples are the actions: [...] of any integer dtype."""

    def __init__(self, parameters: Tensor, count: int) -> None:
        """Take logits [..., A], which need not be normalised; raises ValueError if A is not `count`."""
        check_parameters(parameters, count)
        self.log_probabilities = functional.log_softmax(parameters, -1)  # [..., A]

    def sample(self, generator: torch.Generator) -> Tensor:
        """Draw actions [...] int64."""
        probabilities = self.log_probabilities.detach().exp()  # [..., A]
        rows = probabilities.reshape(-1, probabilities.shape[-1])  # [Π ..., A]
        drawn = torch.multinomial(rows, 1, generator=generator)
        return drawn.view(probabilities.shape[:-1])

    def mode(self) -> Tensor:
        """Return the likeliest actions [...] int64."""
        return self.log_probabilities.argmax(-1)

    def to_action(self, raw: Tensor) -> Tensor:
        """Return raw as int32."""
        return raw.int()

    def log_prob(self, raw: Tensor) -> Tensor:
        """Return log p(raw) [...]."""
        return self.log_probabilities.gather(-1, raw.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self, generator: torch.Generator | None = None) -> Tensor:  # noqa: ARG002 - it is exact
        """Return -Σ p log p [...]."""
        return -(self.log_probabilities.exp() * self.log_probabilities).sum(-1)

    def kl(self, other: Self) -> Tensor:
        """Return Σ p (log p - log q) [...]."""
        return kl_divergence(self.log_probabilities, other.log_probabilities)


class Categoricals(Distribution):
    """K independent choices. Raw samples are the actions: [..., K] of any integer dtype."""

    def __init__(self, parameters: Tensor, counts: Sequence[int]) -> None:
        """Take the logits of all choices behind one another; raises ValueError if they are not Σ `counts`."""
        check_parameters(parameters, sum(counts))
        parts = torch.split(parameters, list(counts), -1)  # [..., counts[k]] each
        self._choices = [Categorical(part, count) for part, count in zip(parts, counts, strict=True)]

    @property
    def log_probabilities(self) -> list[Tensor]:
        """Return log p [..., counts[k]] of the actions of each choice."""
        return [choice.log_probabilities for choice in self._choices]

    def sample(self, generator: torch.Generator) -> Tensor:
        """Draw actions [..., K] int64."""
        return torch.stack([choice.sample(generator) for choice in self._choices], -1)

    def mode(self) -> Tensor:
        """Return the likeliest actions [..., K] int64."""
        return torch.stack([choice.mode() for choice in self._choices], -1)

    def to_action(self, raw: Tensor) -> Tensor:
        """Return raw as int32."""
        return raw.int()

    def log_prob(self, raw: Tensor) -> Tensor:
        """Return the sum of the choices' log-probabilities [...]."""
        parts = zip(self._choices, raw.unbind(-1), strict=True)
        return torch.stack([choice.log_prob(part) for choice, part in parts]).sum(0)

    def entropy(self, generator: torch.Generator | None = None) -> Tensor:  # noqa: ARG002 - it is exact
        """Return the sum of the choices' entropies [...]."""
        return torch.stack([choice.entropy() for choice in self._choices]).sum(0)

    def kl(self, other: Self) -> Tensor:
        """Return the sum of the choices' divergences [...]."""
        parts = zip(self._choices, other._choices, strict=True)
        return torch.stack([choice.kl(rival) for choice, rival in parts]).sum(0)


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


_NORMALS: dict[str, type[Normal]] = {"tanh-normal": TanhNormal, "clipped-normal": ClippedNormal}


def check_target_entropy(target: float, action: ActionSpec) -> None:
    """Raise UserError for an entropy [nats] that no policy over these actions can keep; 0 asks for none."""
    if not target or isinstance(action, Box):  # a density has any
        return
    counts = (action.count,) if isinstance(action, Discrete) else action.counts
    if target >= (most := sum(map(math.log, counts))):
        raise UserError(f"--target-entropy: must be below {most:.4g} nats, that of all actions alike, is {target}")


@dataclass(frozen=True)
class PolicySpec:
    """The kind of a policy's distribution."""

    action: ActionSpec
    box: str = "tanh-normal"  # or clipped-normal; ignored where actions are discrete

    @property
    def nb_parameters(self) -> int:
        """How many parameters P a distribution has."""
        match self.action:
            case Discrete(count):
                return count
            case MultiDiscrete(counts):
                return sum(counts)
            case Box(size):
                return 2 * size

    @property
    def parameters_field(self) -> Field:
        """How a row stores the parameters of the policy that acted."""
        return Field((self.nb_parameters,), "float32")

    def distribution(self, parameters: Tensor) -> Distribution:
        """Return the distribution of parameters [..., P] float32 or float64; raises ValueError for others."""
        match self.action:
            case Discrete(count):
                return Categorical(parameters, count)
            case MultiDiscrete(counts):
                return Categoricals(parameters, counts)
            case Box(size):
                return _NORMALS[self.box](parameters, size)


def inspection_of(policy: Distribution, value: float | None) -> Inspection:
    """Return the inspection of a policy at one row [1, ...]; raises TypeError for a distribution of another kind."""
    match policy:
        case Categorical():
            return Inspection("probabilities", policy.log_probabilities[0].exp().cpu().numpy(), value)
        case Categoricals():
            parts = [part[0] for part in policy.log_probabilities]  # [counts[k]] each
            counts = torch.tensor([len(part) for part in parts], dtype=torch.float32)  # [K]
            return Inspection("choices", torch.cat(parts).exp().cpu().numpy(), value, counts.numpy())
        case Normal():
            places = torch.tensor(FRACTIONS)  # [N]
            quantiles = policy.quantiles(places)[0]  # [K, N]
            action = policy.to_action(policy.mode())[0]  # [K]
            return Inspection("intervals", action.cpu().numpy(), value, places.numpy(), quantiles.cpu().numpy())
    raise TypeError(f"nothing to show of a {type(policy).__name__}")

"""Policies that choose among actions: one choice, or several independent ones."""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from rainbow_iqn_apex.agents.distributions.distribution import Distribution, check_parameters
from rainbow_iqn_apex.agents.ops.divergence import kl_divergence


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

"""What a policy's distribution is, by the code that uses it.

# actor                                             # learner
pi = spec.distribution(parameters)                  pi = spec.distribution(parameters)
raw = pi.sample(generator)                          mu = spec.distribution(recorded parameters)
play pi.to_action(raw), record parameters and raw   log_ratio = pi.log_prob(raw) - mu.log_prob(raw)
"""

from abc import ABC, abstractmethod
from typing import Self

import torch
from torch import Tensor


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

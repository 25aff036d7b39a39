"""Running statistics of observations and returns: means and deviations of all that the run has played.

The learner takes each row into account exactly once, when it has learned from it: chunks come from the actors' logs, of
which none is read twice. What actors see of it travels with the weights, so both sides normalise alike.
"""

from typing import Any

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.on_policy.network import Normaliser
from rainbow_iqn_apex.agents.ops.ranks import ALONE, Ranks
from rainbow_iqn_apex.agents.ops.running_statistics import RunningStatistics


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

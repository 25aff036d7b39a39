"""The losses of SAC, sample by sample and in double precision, for small networks of stacks of two vectors of bytes.

Rewards are clipped to +-1. Row 1 of a window is the one learned from, row 0 the other one of its stack.
"""

import copy
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.sac.agent import Sac, TwinCritics
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.environment_spec import ActionSpec, Box
from rainbow_iqn_apex.memory.rows import StepType


class Slow(NamedTuple):
    """Losses of a batch, in double precision."""

    value: Tensor
    policy: Tensor
    entropy: float


class Reference:
    """Computes the losses sample by sample, with the networks of an agent."""

    def __init__(self, agent: Sac, action: ActionSpec, n: int, gamma: float) -> None:
        self.agent, self.action, self.n, self.gamma = agent, action, n, gamma
        self.network = copy.deepcopy(agent.network).double()
        self.critics = copy.deepcopy(agent.critics).double()
        self.target = copy.deepcopy(agent.target).double()
        self.exponent = agent.temperature.multiplier.exponent.detach().double()
        self.alpha = float(self.exponent.exp())

    def losses(self, batch: Batch) -> Slow:
        B = batch.reward.shape[1]
        generator = torch.Generator()
        generator.set_state(self.agent.generator.get_state())
        size = self.action.size if isinstance(self.action, Box) else 0
        noises = [torch.randn(1, B, size, generator=generator).double()[0] for _ in range(2)]  # [B, K] each
        kept = [b for b in range(B) if batch.step_type[1, b] != StepType.LAST]
        value, q, log_pi = torch.zeros(()).double(), torch.zeros(()).double(), torch.zeros(()).double()
        for b in kept:
            wanted = self.wanted(batch, b, noises[0][b])
            value = value + sum((found - wanted) ** 2 for found in self.given(batch, b)) / 2
            for probability, logarithm, worth in self.choices(self.stack(batch, 1, b), noises[1][b], self.critics):
                q, log_pi = q + probability * worth, log_pi + probability * logarithm
        q, log_pi, bound = q / len(kept), log_pi / len(kept), self.least_log_pi()
        own = self.exponent * (log_pi.detach() - bound)  # the temperature's, of which the policy sees nothing
        return Slow(value / len(kept), self.alpha * log_pi - q - own, -float(log_pi.detach()))

    def least_log_pi(self) -> float:
        """Return the mean log π at which the temperature stays as it is."""
        return self.action.size if isinstance(self.action, Box) else -0.98 * math.log(3)

    def stack(self, batch: Batch, t: int, b: int) -> Tensor:
        """Return the observations of rows t - 1 and t, the former zero at FIRST."""
        before = batch.obs[t - 1, b] * (batch.step_type[t, b] != StepType.FIRST)
        return torch.stack((before, batch.obs[t, b])).double() / 255  # [2, 5]

    def wanted(self, batch: Batch, b: int, noise: Tensor) -> float:
        """Return what the critics are brought to, of the row 1 of the window."""
        total, product = 0.0, 1.0  # of gamma and discounts up to the row before
        for k in range(1, self.n + 1):
            total += product * min(1, max(-1, float(batch.reward[1 + k, b])))
            product *= self.gamma * float(batch.discount[1 + k, b])
            if batch.step_type[1 + k, b] == StepType.LAST:
                break
        with torch.no_grad():
            soft = 0.0
            for probability, logarithm, worth in self.choices(self.stack(batch, 1 + k, b), noise, self.target):
                soft += float(probability * (worth - self.alpha * logarithm))
        return total + product * soft

    def given(self, batch: Batch, b: int) -> list[Tensor]:
        """Return what both critics think of the action taken."""
        seen, action = self.stack(batch, 1, b).flatten(), batch.action[1, b]
        if isinstance(self.action, Box):
            return [head(torch.cat((seen, action.double())))[0] for head in self.critics.heads]
        return [head(seen)[int(action)] for head in self.critics.heads]

    def choices(self, stack: Tensor, noise: Tensor, critics: TwinCritics) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return probability, log π and the smaller value of each action, or of the one sample of numbers."""
        core, seen = self.network.core.torso, stack.flatten()
        parameters = self.network.policy(core.dense(core.body(seen).relu()).relu())
        if not isinstance(self.action, Box):
            probabilities = parameters.softmax(0)
            values = torch.stack([head(seen) for head in critics.heads]).amin(0)
            return [(p, p.log(), value) for p, value in zip(probabilities, values, strict=True)]
        mean, log_std = parameters[:2], parameters[2:]
        raw = mean + log_std.exp() * noise
        normal: Any = torch.distributions.Normal(mean, log_std.exp())
        density = normal.log_prob(raw) - (1 - raw.tanh() ** 2).log()
        worth = torch.stack([head(torch.cat((seen, raw.tanh())))[0] for head in critics.heads]).amin()
        return [(torch.ones(()).double(), density.sum(), worth)]

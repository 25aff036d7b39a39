"""One whole update of Rainbow-IQN or Rainbow in float64, from the formulas of their papers, sample by sample.

Returns, stacks, losses and the slopes of the losses are written out in loops; only the slow network of
`published_network` is differentiated by PyTorch. Random numbers are handed in. Letters: B batch, A actions, N and M
online and target quantiles, K those of the policy.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rainbow_iqn_apex.memory.rows import Array
from tests.ground_truth.categorical import project
from tests.ground_truth.episodes import Episode
from tests.ground_truth.frames import stack
from tests.ground_truth.n_step import n_step
from tests.ground_truth.published_network import NoisyLinear, PublishedNetwork
from tests.ground_truth.quantile import quantile_huber_loss

Noise = dict[str, tuple[Tensor, Tensor]]  # noisy layer -> epsilon of its weights and of its biases


class Settings(NamedTuple):
    """The settings of an update, under the names of the papers."""

    n: int = 3
    gamma: float = 0.99
    reward_clip: float = 1.0
    kappa: float = 1.0
    omega: float = 0.2
    lr: float = 1e-2
    eps: float = 3.125e-4
    max_norm: float = 0.0
    v_min: float = -10.0
    v_max: float = 10.0
    target_period: int = 1000  # updates


class Sample(NamedTuple):
    """An action of an episode."""

    episode: Episode
    step: int
    action: int


class Pass(NamedTuple):
    """What was drawn for one forward pass."""

    noise: Noise
    taus: Array  # [quantiles, B]; empty for Rainbow


class Passes(NamedTuple):
    """The three forward passes of a loss."""

    policy: Pass  # online network at s_{t+m}, for the argmax
    target: Pass  # target network at s_{t+m}
    online: Pass  # online network at s_t


class Result(NamedTuple):
    """What an update says of its batch."""

    losses: Array  # [B]
    values: Array  # [B] mean return of the action taken
    priorities: Array  # [B]
    gradients: dict[str, Array]
    norm: float  # of the gradient, before it is clipped
    margin: float  # by which the best next action is better than the second best, at least


class ReferenceLearner:
    """Networks, Adam's moments and the target network's clock."""

    def __init__(self, network: PublishedNetwork, target: PublishedNetwork, settings: Settings) -> None:
        self.network, self.target, self.settings = network.double(), target.double(), settings
        self.parameters = dict(network.named_parameters())
        self._first = {name: np.zeros(parameter.shape) for name, parameter in self.parameters.items()}
        self._second = {name: np.zeros(parameter.shape) for name, parameter in self.parameters.items()}
        self.updates = 0

    def update(self, samples: list[Sample], weights: Array, passes: Passes) -> Result:
        """One step of Adam on mean(weight · loss)."""
        now, later, returns, discounts = self._transitions(samples)
        actions = [sample.action for sample in samples]
        loss = self._quantile_loss if self.network.embedding else self._categorical_loss
        said, slopes, result = loss(now, later, returns, discounts, actions, passes)
        for parameter in self.parameters.values():
            parameter.grad = None
        said.backward(torch.tensor(slopes * weights / len(samples)))  # type: ignore[no-untyped-call]
        gradients = {name: _array(parameter.grad) for name, parameter in self.parameters.items()}
        norm = float(np.sqrt(sum((gradient**2).sum() for gradient in gradients.values())))
        if 0 < self.settings.max_norm < norm:
            gradients = {name: gradient * self.settings.max_norm / norm for name, gradient in gradients.items()}
        self._adam(gradients)
        if self.updates % self.settings.target_period == 0:
            self.target.load_state_dict(self.network.state_dict())
        return result._replace(gradients=gradients, norm=norm)

    def _transitions(self, samples: list[Sample]) -> tuple[Tensor, Tensor, Array, Array]:
        limit = self.settings.reward_clip
        now, later, returns, discounts = [], [], [], []
        for episode, step, _ in samples:
            clipped = episode._replace(rewards=[max(-limit, min(limit, reward)) for reward in episode.rewards])
            return_, discount, steps = n_step(clipped, step, self.settings.n, self.settings.gamma)
            now.append(stack(episode, step, self.network.conv1.in_channels))
            later.append(stack(episode, step + steps, self.network.conv1.in_channels))
            returns.append(return_)
            discounts.append(discount)
        return torch.tensor(np.stack(now)), torch.tensor(np.stack(later)), np.array(returns), np.array(discounts)

    def _quantile_loss(
        self, now: Tensor, later: Tensor, returns: Array, discounts: Array, actions: list[int], passes: Passes
    ) -> tuple[Tensor, Array, Result]:
        batch = len(actions)
        policy = _array(_quantiles(self.network, later, passes.policy))  # [K, B, A]
        best, margin = _best(policy.mean(0))
        bootstrap = _array(_quantiles(self.target, later, passes.target))  # [M, B, A]
        targets = np.array(
            [[returns[b] + discounts[b] * row[b, best[b]] for b in range(batch)] for row in bootstrap]
        )  # [M, B]
        said = _quantiles(self.network, now, passes.online)[:, range(batch), actions]  # [N, B]
        losses = quantile_huber_loss(_array(said), passes.online.taus, targets, self.settings.kappa)
        slopes = _huber_slopes(_array(said), passes.online.taus, targets, self.settings.kappa)
        return said, slopes, self._result(losses, _array(said).mean(0), margin)

    def _categorical_loss(
        self, now: Tensor, later: Tensor, returns: Array, discounts: Array, actions: list[int], passes: Passes
    ) -> tuple[Tensor, Array, Result]:
        batch = range(len(actions))
        support = np.linspace(self.settings.v_min, self.settings.v_max, self.network.atoms)
        policy = np.exp(_array(_log_probabilities(self.network, later, passes.policy)))  # [B, A, atoms]
        best, margin = _best((policy * support).sum(2))
        bootstrap = np.exp(_array(_log_probabilities(self.target, later, passes.target)))[batch, best]  # [B, atoms]
        projected = project(support, bootstrap, returns, discounts)
        chosen = _log_probabilities(self.network, now, passes.online)[batch, actions]  # [B, atoms]
        said = chosen.T  # [atoms, B]
        losses = -np.array([(projected[b] * _array(chosen)[b]).sum() for b in batch])
        values = np.array([(support * np.exp(_array(chosen)[b])).sum() for b in batch])
        return said, -projected.T, self._result(losses, values, margin)

    def _result(self, losses: Array, values: Array, margin: float) -> Result:
        return Result(losses, values, losses**self.settings.omega, {}, 0.0, margin)

    def _adam(self, gradients: dict[str, Array]) -> None:
        """Algorithm 1 of Kingma and Ba 2015 (arXiv 1412.6980), with their β."""
        self.updates += 1
        for name, gradient in gradients.items():
            self._first[name] = 0.9 * self._first[name] + 0.1 * gradient
            self._second[name] = 0.999 * self._second[name] + 0.001 * gradient**2
            first = self._first[name] / (1 - 0.9**self.updates)
            second = self._second[name] / (1 - 0.999**self.updates)
            step = self.settings.lr * first / (np.sqrt(second) + self.settings.eps)
            self.parameters[name].data -= torch.tensor(step)


def _huber_slopes(quantiles: Array, taus: Array, targets: Array, kappa: float) -> Array:
    """d loss / d Z_i [N, B]: the derivative of huber_κ(δ) by δ is δ, cut at ±κ, and δ falls as Z rises."""
    slopes = np.zeros_like(quantiles)
    for i, b in np.ndindex(*quantiles.shape):
        for target in targets[:, b]:
            delta = target - quantiles[i, b]
            weight = abs(taus[i, b] - (1.0 if delta < 0 else 0.0))
            slopes[i, b] -= weight * max(-kappa, min(kappa, delta)) / kappa / len(targets)
    return slopes


def _best(values: Array) -> tuple[list[int], float]:
    """The best action of each sample, and by how much it is, at least."""
    ordered = np.sort(values, axis=1)
    return [int(row.argmax()) for row in values], float((ordered[:, -1] - ordered[:, -2]).min())


def _under(network: PublishedNetwork, noise: Noise) -> PublishedNetwork:
    for name, (weight, bias) in noise.items():
        layer = getattr(network, name)
        assert isinstance(layer, NoisyLinear)
        layer.weight_epsilon, layer.bias_epsilon = weight.double(), bias.double()
    return network


def _quantiles(network: PublishedNetwork, frames: Tensor, drawn: Pass) -> Tensor:
    rows = _under(network, drawn.noise).quantiles(frames, torch.tensor(drawn.taus).flatten())  # row k * B + b
    return rows.reshape(*drawn.taus.shape, network.actions)


def _log_probabilities(network: PublishedNetwork, frames: Tensor, drawn: Pass) -> Tensor:
    return _under(network, drawn.noise).log_probabilities(frames)


def _array(tensor: Tensor | None) -> Array:
    assert tensor is not None
    return tensor.detach().numpy().copy()

"""The networks of the Rainbow agents: a convolutional trunk and noisy duelling heads.

Parameter names are those of snapshots in circulation and must not change. Letters: B batch, S stack, F features,
H hidden units, N quantiles, A actions.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from agents.ops.noise import factorised_noise
from memory.chunk import Field


class NoisyLinear(nn.Module):
    """Linear layer with factorised Gaussian noise (Fortunato et al. 2018, arXiv 1706.10295, equation 9)."""

    weight_epsilon: Tensor
    bias_epsilon: Tensor

    def __init__(self, inputs: int, outputs: int, std: float) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight_mu = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((outputs, inputs), std / math.sqrt(inputs)))
        self.bias_mu = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.bias_sigma = nn.Parameter(torch.full((outputs,), std / math.sqrt(outputs)))
        self.register_buffer("weight_epsilon", torch.zeros(outputs, inputs))
        self.register_buffer("bias_epsilon", torch.zeros(outputs))

    def draw_noise(self, generator: torch.Generator) -> None:
        """Draw new noise; it holds until the next call."""
        outputs, inputs = self.weight_mu.shape
        noise_in = factorised_noise(inputs, generator, self.weight_mu.device)
        noise_out = factorised_noise(outputs, generator, self.weight_mu.device)
        torch.outer(noise_out, noise_in, out=self.weight_epsilon)
        self.bias_epsilon.copy_(noise_out)

    def effective(self) -> tuple[Tensor, Tensor]:
        """Weight [outputs, inputs] and bias [outputs] with the present noise."""
        weight = torch.addcmul(self.weight_mu, self.weight_sigma, self.weight_epsilon)
        return weight, torch.addcmul(self.bias_mu, self.bias_sigma, self.bias_epsilon)


class Heads(NamedTuple):
    """The weights of the four noisy layers for one noise draw; both hidden layers stand in one matrix."""

    hidden_weight: Tensor  # [2 H, F] value stream above advantage stream
    hidden_bias: Tensor  # [2 H]
    value_weight: Tensor  # [outputs, H]
    value_bias: Tensor  # [outputs]
    advantage_weight: Tensor  # [A * outputs, H]
    advantage_bias: Tensor  # [A * outputs]


def _canonical(stack: int) -> list[nn.Conv2d]:
    return [
        nn.Conv2d(stack, 32, 8, stride=4, padding=1),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.Conv2d(64, 64, 3),
    ]


def _data_efficient(stack: int) -> list[nn.Conv2d]:
    return [nn.Conv2d(stack, 32, 5, stride=5), nn.Conv2d(32, 64, 5, stride=5)]


# DQN's trunk (Mnih et al. 2015), and the one of data-efficient Rainbow (van Hasselt et al. 2019, arXiv 1906.05243),
# whose 576 features in the place of 3136 make an update several times cheaper.
ARCHITECTURES: dict[str, Callable[[int], list[nn.Conv2d]]] = {
    "canonical": _canonical,
    "data-efficient": _data_efficient,
}


def _pixels(convolutions: list[nn.Conv2d], size: int) -> int:
    """Side of the last layer's output for a square input."""
    for layer in convolutions:
        size = (size + 2 * int(layer.padding[0]) - layer.kernel_size[0]) // layer.stride[0] + 1
    return size


@dataclass(frozen=True)
class Shape:
    """What networks are built from."""

    observation: Field
    stack: int
    nb_actions: int
    hidden_size: int
    noisy_std: float
    architecture: str = "canonical"  # a key of ARCHITECTURES
    precision: torch.dtype = torch.float32  # of the large products; weights, outputs and losses are float32


class DuellingNetwork(nn.Module):
    """Trunk and noisy duelling heads with `outputs` numbers per action (Wang et al. 2016, arXiv 1511.06581).

    The trunk is `shape.architecture`'s for frames of 84x84, and one linear layer for any other observation.
    """

    def __init__(self, shape: Shape, outputs: int) -> None:
        super().__init__()
        self.nb_actions = shape.nb_actions
        self._outputs = outputs
        self._precision = shape.precision
        self._scale = 1 / 255 if shape.observation.dtype == "uint8" else 1.0
        self._convolutions: list[nn.Conv2d] = []  # also attributes, under the names of snapshots
        if shape.observation.shape == (84, 84):
            for i, convolution in enumerate(ARCHITECTURES[shape.architecture](shape.stack), start=1):
                setattr(self, f"conv{i}", convolution)
                self._convolutions.append(convolution)
            self.nb_features = self._convolutions[-1].out_channels * _pixels(self._convolutions, 84) ** 2
        else:
            self.fc1 = nn.Linear(shape.stack * math.prod(shape.observation.shape), shape.hidden_size)
            self.nb_features = shape.hidden_size
        self.fcnoisy_h_v = NoisyLinear(self.nb_features, shape.hidden_size, shape.noisy_std)
        self.fcnoisy_h_a = NoisyLinear(self.nb_features, shape.hidden_size, shape.noisy_std)
        self.fcnoisy_z_v = NoisyLinear(shape.hidden_size, outputs, shape.noisy_std)
        self.fcnoisy_z_a = NoisyLinear(shape.hidden_size, shape.nb_actions * outputs, shape.noisy_std)

    @torch.no_grad()
    def draw_noise(self, generator: torch.Generator) -> None:
        """Draw new noise for all noisy layers."""
        for layer in (self.fcnoisy_h_v, self.fcnoisy_h_a, self.fcnoisy_z_v, self.fcnoisy_z_a):
            layer.draw_noise(generator)

    def heads(self) -> Heads:
        """The noisy layers' weights for the present noise; an actor makes them once per draw."""
        value, advantage = self.fcnoisy_h_v.effective(), self.fcnoisy_h_a.effective()
        hidden = [torch.cat(pair).to(self._precision) for pair in zip(value, advantage, strict=True)]
        return Heads(hidden[0], hidden[1], *self.fcnoisy_z_v.effective(), *self.fcnoisy_z_a.effective())

    def features(self, obs: Tensor) -> Tensor:
        """Features [B, F] of stacked observations [B, S, ...], in the network's precision."""
        if not self._convolutions:
            # In float32, as bfloat16 would cut the numbers of an observation to three digits; bytes it holds exactly.
            return functional.relu(self.fc1((obs.float() * self._scale).flatten(1))).to(self._precision)
        x, scale = obs.to(self._precision), self._scale
        for layer in self._convolutions:
            weight = (layer.weight * scale).to(self._precision)  # cheaper than to scale the frames
            bias = None if layer.bias is None else layer.bias.to(self._precision)
            x = functional.relu(functional.conv2d(x, weight, bias, layer.stride, layer.padding))
            scale = 1.0
        return x.flatten(1)

    def duel(self, features: Tensor, heads: Heads) -> Tensor:
        """v + a - mean(a): features [M, F] -> [M, A, outputs] float32.

        The last layer is small and computed in float32: actions often differ by less than bfloat16 can tell apart.
        """
        hidden = functional.relu(functional.linear(features, heads.hidden_weight, heads.hidden_bias)).float()
        of_value, of_advantage = hidden.chunk(2, dim=1)
        value = functional.linear(of_value, heads.value_weight, heads.value_bias)
        advantage = functional.linear(of_advantage, heads.advantage_weight, heads.advantage_bias)
        value = value.view(-1, 1, self._outputs)
        advantage = advantage.view(-1, self.nb_actions, self._outputs)
        return value + advantage - advantage.mean(1, keepdim=True)


class QuantileNetwork(DuellingNetwork):
    """IQN with Rainbow's heads: quantiles of the return at given fractions (arXiv 1806.06923, equation 4)."""

    _frequencies: Tensor

    def __init__(self, shape: Shape, embedding_dim: int) -> None:
        super().__init__(shape, outputs=1)
        self.iqn_fc = nn.Linear(embedding_dim, self.nb_features)
        self.register_buffer("_frequencies", math.pi * torch.arange(1, embedding_dim + 1), persistent=False)

    def forward(self, obs: Tensor, taus: Tensor, heads: Heads) -> Tensor:
        """Quantiles [N, B, A] of stacked observations [B, S, ...] at fractions taus [N, B]."""
        cosines = torch.cos(taus.reshape(-1, 1) * self._frequencies)  # [N * B, embedding], quantile-major
        weight, bias = self.iqn_fc.weight.to(self._precision), self.iqn_fc.bias.to(self._precision)
        embedding = functional.relu(functional.linear(cosines.to(self._precision), weight, bias))
        embedding = embedding.view(*taus.shape, -1)  # [N, B, F]
        features = (embedding * self.features(obs)).flatten(0, 1)  # [N * B, F]
        return self.duel(features, heads).view(*taus.shape, self.nb_actions)


class CategoricalNetwork(DuellingNetwork):
    """Rainbow's C51 network: log-probabilities of atoms for each action (arXiv 1710.02298)."""

    def forward(self, obs: Tensor, heads: Heads) -> Tensor:
        """Log-probabilities [B, A, atoms] of stacked observations [B, S, ...]."""
        return functional.log_softmax(self.duel(self.features(obs), heads), dim=2)

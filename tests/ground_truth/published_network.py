"""The networks that published snapshots are of, written down from their description, slowly and layer by layer.

Children stand in the order of that description, which is not the order of `agents.networks.duelling`: the order
tells which of an optimiser's moments belong to which parameter. Letters: B batch, S stack, F features, N quantiles,
A actions.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

TRUNKS = {"canonical": 3136, "data-efficient": 576}  # architecture -> F


class NoisyLinear(nn.Module):
    """mu + sigma * epsilon for weights and biases."""

    weight_epsilon: Tensor
    bias_epsilon: Tensor

    def __init__(self, inputs: int, outputs: int, std: float) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight_mu = nn.Parameter((torch.rand(outputs, inputs) * 2 - 1) * bound)
        self.weight_sigma = nn.Parameter(torch.ones(outputs, inputs) * std / math.sqrt(inputs))
        self.register_buffer("weight_epsilon", torch.zeros(outputs, inputs))
        self.bias_mu = nn.Parameter((torch.rand(outputs) * 2 - 1) * bound)
        self.bias_sigma = nn.Parameter(torch.ones(outputs) * std / math.sqrt(outputs))
        self.register_buffer("bias_epsilon", torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight_mu + self.weight_sigma * self.weight_epsilon
        bias = self.bias_mu + self.bias_sigma * self.bias_epsilon
        return x @ weight.T + bias


class PublishedNetwork(nn.Module):
    """Rainbow-IQN with an `embedding` of so many cosines, Rainbow with so many `atoms`: one of the two is 0."""

    def __init__(
        self, stack: int, actions: int, hidden: int, *, embedding: int = 0, atoms: int = 0,
        architecture: str = "canonical", std: float = 0.1,
    ) -> None:  # fmt: skip
        super().__init__()
        self.actions, self.atoms, self.embedding = actions, atoms, embedding
        self.canonical = architecture == "canonical"
        features, outputs = TRUNKS[architecture], atoms or 1
        if self.canonical:
            self.conv1 = nn.Conv2d(stack, 32, 8, stride=4, padding=1)
            self.conv2 = nn.Conv2d(32, 64, 4, stride=2)
            self.conv3 = nn.Conv2d(64, 64, 3)
        else:
            self.conv1 = nn.Conv2d(stack, 32, 5, stride=5)
            self.conv2 = nn.Conv2d(32, 64, 5, stride=5)
        if embedding:
            self.iqn_fc = nn.Linear(embedding, features)
        self.fcnoisy_h_v = NoisyLinear(features, hidden, std)
        self.fcnoisy_h_a = NoisyLinear(features, hidden, std)
        self.fcnoisy_z_v = NoisyLinear(hidden, outputs, std)
        self.fcnoisy_z_a = NoisyLinear(hidden, actions * outputs, std)

    def trunk(self, frames: Tensor) -> Tensor:
        """Features [B, F] of bytes [B, S, 84, 84]."""
        x = frames.to(self.conv1.weight.dtype) / 255
        x = torch.relu(self.conv1(x))
        x = torch.relu(self.conv2(x))
        if self.canonical:
            x = torch.relu(self.conv3(x))
        return x.reshape(len(frames), -1)

    def duel(self, x: Tensor) -> Tensor:
        """[rows, F] -> [rows, A, outputs]."""
        value = self.fcnoisy_z_v(torch.relu(self.fcnoisy_h_v(x))).reshape(len(x), 1, -1)
        advantage = self.fcnoisy_z_a(torch.relu(self.fcnoisy_h_a(x))).reshape(len(x), self.actions, -1)
        combined: Tensor = value + advantage - advantage.mean(1, keepdim=True)
        return combined

    def quantiles(self, frames: Tensor, taus: Tensor) -> Tensor:
        """Quantiles [N * B, A] at fractions [N * B]; row k * B + b is quantile k of sample b."""
        tiled = self.trunk(frames).repeat(len(taus) // len(frames), 1)
        cosines = torch.stack([torch.cos(math.pi * i * taus) for i in range(1, self.embedding + 1)], dim=1)
        return self.duel(tiled * torch.relu(self.iqn_fc(cosines)))[:, :, 0]

    def log_probabilities(self, frames: Tensor) -> Tensor:
        """log p [B, A, atoms]."""
        return self.duel(self.trunk(frames)).log_softmax(2)


def draw_noise(network: PublishedNetwork, generator: torch.Generator) -> None:
    """Draw factorised noise, f(x) = sgn(x) √|x| of Gaussians for inputs and outputs."""
    for layer in network.children():
        if isinstance(layer, NoisyLinear):
            outputs, inputs = layer.weight_mu.shape
            x, y = torch.randn(inputs, generator=generator), torch.randn(outputs, generator=generator)
            noise_in, layer.bias_epsilon = x.sign() * x.abs().sqrt(), y.sign() * y.abs().sqrt()
            layer.weight_epsilon = layer.bias_epsilon[:, None] * noise_in[None, :]


def snapshot_of(network: PublishedNetwork, *, with_noise: bool = True, optimiser: Any = None) -> dict[str, Any]:
    """A snapshot as it is published; older ones and those of other tools have no noise buffers."""
    weights = {k: v for k, v in network.state_dict().items() if with_noise or not k.endswith("_epsilon")}
    state = {} if optimiser is None else optimiser.state_dict()
    return {"T_actors": 200, "T_learner": 196, "model_state_dict": weights, "optimiser_state_dict": state}

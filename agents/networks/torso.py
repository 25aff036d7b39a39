"""What turns stacked observations into features: convolutions for frames of 84x84, linear layers for anything else.

Letters: B batch, S stack, F features.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from rainbow_iqn_apex.agents.networks.duelling import ARCHITECTURES
from rainbow_iqn_apex.memory.environment_spec import Field

FRAME = (84, 84)
_CHANNELS = {"deep": (16, 32, 32), "deep-football": (16, 32, 32, 32)}  # of the residual networks' stacks
TORSOS = {"shallow": "canonical", "data-efficient": "data-efficient", **{name: name for name in _CHANNELS}}


@dataclass(frozen=True)
class TorsoSpec:
    """Sizes and kinds of a torso's layers."""

    observation: Field
    stack: int
    architecture: str  # a key of TORSOS; of no account for observations that are no frames
    features: int
    precision: torch.dtype = torch.float32  # of the products; weights and features are float32
    learns: bool = True  # else the largest weights are kept in that precision, not rounded for each row anew


class Torso(nn.Module):
    """Features [B, F] float32 of stacked observations [B, S, ...]."""

    def __init__(self, spec: TorsoSpec) -> None:
        super().__init__()
        self._scale = 1 / 255 if spec.observation.dtype == "uint8" else 1.0
        self._is_picture = spec.observation.shape == FRAME
        # Elsewhere float32: bfloat16 would cut the numbers of an observation to three digits.
        self.precision = spec.precision if self._is_picture else torch.float32
        inputs = spec.stack * math.prod(spec.observation.shape)
        if self._is_picture:
            self.body = _body(spec.architecture, spec.stack)
            kept = _sizes(self.body, torch.zeros(1, spec.stack, *FRAME), 8 // spec.precision.itemsize)
            self.dense = nn.Linear(kept[-1], spec.features)
            if not spec.learns:
                self.body[1:].to(spec.precision)
                self.dense.to(spec.precision)
        else:
            self.body = nn.Sequential(nn.Linear(inputs, spec.features), nn.ReLU())
            self.dense = nn.Linear(spec.features, spec.features)
            kept = [spec.features]
        self._stack_bytes: int = inputs * getattr(torch, spec.observation.dtype).itemsize
        self._inputs, self._kept = inputs, kept

    def forward(self, obs: Tensor) -> Tensor:
        """Return the features of stacked observations [B, S, ...] of any dtype."""
        if not self._is_picture:
            return functional.relu(self.dense(self.body(obs.float().flatten(1) * self._scale)))
        with torch.autocast(obs.device.type, self.precision, enabled=self.precision != torch.float32):
            x = self._first_layer(obs)
            for layer in itertools.islice(self.body, 1, None):
                x = layer(x)
            return functional.relu(self.dense(x.flatten(1))).float()

    def update_bytes(self, rows: int, learned: int) -> int:
        """Estimate the bytes that an update holds at once for so many rows, `learned` of them with gradient."""
        size = self.precision.itemsize
        seen = self._inputs + max(self._kept)
        # A CPU's library sorts the inputs and outputs of the first layers anew for the gradients of their weights.
        differentiated = 2 * self._inputs + sum(self._kept) + 2 * max(self._kept)
        return 2 * rows * self._stack_bytes + size * max(rows * seen, learned * differentiated)

    def _first_layer(self, obs: Tensor) -> Tensor:
        """Convolve bytes as they are: to scale the weights is cheaper than to scale the frames.

        Channels come last in memory: a CPU convolves up to twice as fast so, and pools ten times as fast. Bytes are
        brought into this order twice as fast as numbers.
        """
        first = self.body[0]
        assert isinstance(first, nn.Conv2d)
        x = obs.contiguous(memory_format=torch.channels_last).to(self.precision)
        return functional.conv2d(x, first.weight * self._scale, first.bias, first.stride, first.padding)


def _body(architecture: str, stack: int) -> nn.Sequential:
    """Return the layers of an architecture: a convolution first, a ReLU last."""
    if architecture in _CHANNELS:
        return _residual(stack, _CHANNELS[architecture])
    layers = ARCHITECTURES[TORSOS[architecture]](stack)
    return nn.Sequential(*(part for layer in layers for part in (layer, nn.ReLU(inplace=True))))


def _sizes(body: nn.Sequential, blank: Tensor, place: int) -> list[int]:
    """Count the numbers that each layer keeps of a row for its gradient; the last are the body's outputs.

    A pool keeps the places of its outputs, each as large as `place` numbers.
    """
    sizes: list[int] = []
    shares = {nn.Conv2d: 1, nn.MaxPool2d: place}

    def count(layer: nn.Module, _: object, output: Tensor) -> None:
        sizes.append(shares[type(layer)] * output.numel())

    hooks = [layer.register_forward_hook(count) for layer in body.modules() if type(layer) in shares]
    with torch.no_grad():
        sizes.append(body(blank).numel())
    for hook in hooks:
        hook.remove()
    return sizes


def _residual(stack: int, channels: Sequence[int]) -> nn.Sequential:
    """Return IMPALA's deep network (Espeholt et al. 2018, figure 3): each stack halves the picture's sides."""
    layers: list[nn.Module] = []
    for before, after in zip((stack, *channels), channels, strict=False):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
        layers += [ResidualBlock(after), ResidualBlock(after)]
    return nn.Sequential(*layers, nn.ReLU())


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of x's shape."""
        inner: Tensor = self.conv2(functional.relu(self.conv1(functional.relu(x)), inplace=True))
        return x + inner

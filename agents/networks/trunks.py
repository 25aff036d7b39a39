"""The convolutions of pictures, by `--architecture`: each begins with a convolution and ends with a ReLU."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

# A random u has σ near three quarters of the largest value, and a target network keeps its first one for long.
# PyTorch's own spectral_norm begins with as many steps.
_FIRST_STEPS = 15
_CUT_DEVIATION = 0.87962566  # of a normal of deviation 1 that is cut at -2 and 2


class SpectralConv2d(nn.Conv2d):
    """A convolution of 3x3 whose weight is divided by an estimate σ of its largest singular value.

    Spectral normalisation (Miyato et al. 2018, arXiv 1802.05957) of the weight as a matrix W [O, I]: O output channels,
    I input channels times the kernel's pixels.

    σ = u · W v. Only a forward pass that gradients will follow makes a step of the power iteration, v = Wᵀu / |Wᵀu|
    and then u = W v / |W v|; u and v count as constants in the gradient. They are buffers, which are published with the
    weights, and copied to the target network.
    """

    left: Tensor  # u [O]
    right: Tensor  # v [I]

    def __init__(self, channels: int) -> None:
        super().__init__(channels, channels, 3, padding=1)
        matrix = self.weight.detach().flatten(1)
        self.register_buffer("left", functional.normalize(torch.randn(len(matrix)), dim=0))
        self.register_buffer("right", torch.zeros(matrix.shape[1]))
        for _ in range(_FIRST_STEPS):
            self._iterate()

    def forward(self, x: Tensor) -> Tensor:
        """Return the convolution with the divided weight."""
        if torch.is_grad_enabled() and self.weight.requires_grad:
            self._iterate()
        # Copies: the next step of the iteration changes what the backward pass still needs.
        with torch.autocast(x.device.type, enabled=False):
            sigma = self.left.clone() @ (self.weight.flatten(1).float() @ self.right.clone())  # []
            weight = self.weight.float() / sigma
        convolved: Tensor = self._conv_forward(x, weight.to(x.dtype), self.bias)
        return convolved

    @torch.no_grad()
    def _iterate(self) -> None:
        matrix = self.weight.flatten(1)
        with torch.autocast(matrix.device.type, enabled=False):
            self.right.copy_(functional.normalize(matrix.t() @ self.left, dim=0))
            self.left.copy_(functional.normalize(matrix @ self.right, dim=0))


def _plain(*convolutions: nn.Conv2d) -> nn.Sequential:
    return nn.Sequential(*(part for layer in convolutions for part in (layer, nn.ReLU(inplace=True))))


def dqn(channels: int) -> nn.Sequential:
    """Return DQN's trunk (Mnih et al. 2015, 10.1038/nature14236), with the padding of the network of 2019."""
    return _plain(nn.Conv2d(channels, 32, 8, stride=4, padding=1), nn.Conv2d(32, 64, 4, stride=2), nn.Conv2d(64, 64, 3))


def data_efficient(channels: int) -> nn.Sequential:
    """Return the trunk of data-efficient Rainbow (van Hasselt et al. 2019, arXiv 1906.05243).

    Its 576 features of 84x84 pixels, in the place of 3136, make an update several times cheaper.
    """
    return _plain(nn.Conv2d(channels, 32, 5, stride=5), nn.Conv2d(32, 64, 5, stride=5))


class ResidualBlock(nn.Module):
    """x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm1: nn.Module = nn.Identity()
        self.norm2: nn.Module = nn.Identity()

    def normalise(self) -> None:
        """Put a layer norm behind both convolutions."""
        self.norm1, self.norm2 = (ChannelNorm(conv.out_channels) for conv in (self.conv1, self.conv2))

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of x's shape."""
        inner: Tensor = self.norm2(
            self.conv2(functional.relu(self.norm1(self.conv1(functional.relu(x))), inplace=True))
        )
        return x + inner


def _residual(*widths: int) -> Callable[[int], nn.Sequential]:
    """Return IMPALA's deep network (Espeholt et al. 2018, figure 3): each stack halves the picture's sides."""

    def make(channels: int) -> nn.Sequential:
        layers: list[nn.Module] = []
        for before, after in zip((channels, *widths), widths, strict=False):
            layers += [nn.Conv2d(before, after, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
            layers += [ResidualBlock(after), ResidualBlock(after)]
        return nn.Sequential(*layers, nn.ReLU())

    return make


def lecun_normal(module: nn.Module) -> None:
    """Draw first weights from normals of variance 1 / inputs, cut at two deviations; let biases begin at 0."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            deviation = 1 / math.sqrt(layer.weight[0].numel()) / _CUT_DEVIATION
            nn.init.trunc_normal_(layer.weight, 0.0, deviation, -2 * deviation, 2 * deviation)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)


def orthogonal(module: nn.Module, gain: float = math.sqrt(2)) -> None:
    """Let the layers begin orthogonal, and without bias, but for residual trunks, which keep what they begin with.

    A block x + conv(conv(x)) of orthogonal layers doubles the mean square of what it is given: six of them make first
    values of 2 to 10, eight of 20 to 55.
    """
    trunks = [part for part in module.modules() if any(isinstance(each, ResidualBlock) for each in part.children())]
    kept = {layer for trunk in trunks for layer in trunk.modules()}
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d) and layer not in kept:
            # A network that only acts may keep its own in bfloat16; learners with other numbers of threads decompose to
            # other digits, which rounding to float32 hides.
            weight = torch.empty(layer.weight.shape, dtype=torch.float64)
            nn.init.orthogonal_(weight, gain)
            with torch.no_grad():
                layer.weight.copy_(weight)
            assert layer.bias is not None
            nn.init.zeros_(layer.bias)


def _football(channels: int) -> nn.Sequential:
    """Return the stacks of the central-inference system's football network, and its first weights."""
    body = _residual(16, 32, 32, 32)(channels)
    lecun_normal(body)
    return body


def normalise_residual(body: nn.Sequential) -> None:
    """Put spectrally normalised convolutions into the residual blocks of a trunk."""
    for block in body:
        if isinstance(block, ResidualBlock):
            block.conv1, block.conv2 = (SpectralConv2d(block.conv1.in_channels) for _ in range(2))


class ChannelNorm(nn.LayerNorm):
    """Normalises the channels of each pixel of x [B, C, H, W], as flax's LayerNorm does behind a convolution."""

    def forward(self, x: Tensor) -> Tensor:
        """Return a tensor of x's shape."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def layer_normalised(body: nn.Sequential) -> nn.Sequential:
    """Return a trunk with a layer norm behind each of its convolutions."""
    layers: list[nn.Module] = []
    for layer in body:
        if isinstance(layer, ResidualBlock):
            layer.normalise()
        layers.append(layer)
        if isinstance(layer, nn.Conv2d):
            layers.append(ChannelNorm(layer.out_channels))
    return nn.Sequential(*layers)


TRUNKS: dict[str, Callable[[int], nn.Sequential]] = {  # channels of a stack -> layers
    "canonical": dqn,
    "shallow": dqn,
    "data-efficient": data_efficient,
    "deep": _residual(16, 32, 32),
    "deep-2": _residual(32, 64, 64),  # twice as wide, as in BTR (Clark et al. 2024, arXiv 2411.03820)
    "deep-football": _football,
}


def kept_numbers(body: nn.Sequential, shape: Sequence[int], place: int) -> list[int]:
    """Count the numbers that each layer keeps of a picture [C, H, W] for its gradient; the last are the outputs.

    A pool keeps the places of its outputs, each as large as `place` numbers. Raises RuntimeError for a picture that is
    smaller than a kernel.
    """
    sizes: list[int] = []
    shares = {nn.Conv2d: 1, SpectralConv2d: 1, ChannelNorm: 1, nn.MaxPool2d: place, nn.AdaptiveMaxPool2d: place}

    def count(layer: nn.Module, _: object, output: Tensor) -> None:
        sizes.append(shares[type(layer)] * output.numel())

    hooks = [layer.register_forward_hook(count) for layer in body.modules() if type(layer) in shares]
    with torch.no_grad():
        sizes.append(body(torch.zeros(1, *shape)).numel())
    for hook in hooks:
        hook.remove()
    return sizes

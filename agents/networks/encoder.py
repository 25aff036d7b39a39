"""What turns stacked observations into features, for every agent: convolutions of pictures, linear layers of vectors.

Observations of several kinds, such as a picture and numbers, go through a trunk for each kind. Texts, such as a task's
instruction, and maps of symbols, such as NetHack's, are choices from a vocabulary, which are embedded first.

Letters: B batch, S stack, C channels or planes, H rows and W columns of a map, or W words, F features.
"""

import itertools
import math
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from rainbow_iqn_apex.agents.networks.trunks import (
    TRUNKS,
    kept_numbers,
    layer_normalised,
    lecun_normal,
    normalise_residual,
)
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.environment_spec import Field

_EMBEDDED, _FEATURES = 20, 64  # as the language LSTM of IMPALA (Espeholt et al. 2018, figure 3)
_PLANES = 16  # of a symbol; NLE's baseline has 32 (Küttler et al. 2020)


class Words(nn.Module):
    """Features [B, 64] of texts [B, W], of an LSTM that has read the words; zeros of a text without any."""

    nb_features = _FEATURES

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self._most = vocabulary - 1
        self.embedding = nn.Embedding(vocabulary, _EMBEDDED)
        self.lstm = nn.LSTM(_EMBEDDED, _FEATURES, batch_first=True)

    def forward(self, words: Tensor) -> Tensor:
        """Return the features of words [B, W] from 1 on; zeros stand behind the last one."""
        words = words.long().clamp(0, self._most)  # what an actor sends cannot reach beyond the table
        outputs: Tensor = self.lstm(self.embedding(words))[0]  # [B, W, 64]
        length = (words > 0).sum(1)  # [B]
        last = (length - 1).clamp(min=0)[:, None, None].expand(-1, 1, _FEATURES)
        return outputs.gather(1, last).squeeze(1) * (length > 0)[:, None]  # [B, 64]

    @staticmethod
    def kept(words: int) -> int:
        """Count the numbers that are kept of a text for the gradient: four gates and two states of each word."""
        return words * (_EMBEDDED + 6 * _FEATURES)


class Symbols(nn.Module):
    """Planes [B, 16 C, H, W] of maps [B, C, H, W] of symbols: what is learned of each symbol, at its places."""

    nb_planes = _PLANES

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self._most = vocabulary - 1
        self.embedding = nn.Embedding(vocabulary, _PLANES)

    def forward(self, symbols: Tensor) -> Tensor:
        """Return the planes of symbols from 0 on."""
        learned: Tensor = self.embedding(symbols.long().clamp(0, self._most))  # [B, C, H, W, 16]
        return learned.movedim(-1, 2).flatten(1, 2)


@dataclass(frozen=True)
class EncoderSpec:
    """Sizes and kinds of an encoder's layers."""

    observation: Field
    stack: int
    architecture: str  # a key of TRUNKS; ignored for vectors
    features: int  # of the last layer; a trunk alone has as many only behind a vector
    precision: torch.dtype = torch.float32  # of the products; weights and features are float32
    learns: bool = True  # else an encoder keeps its largest weights in that precision, not rounded for each row anew
    pool: int = 0  # a picture's last feature maps are max-pooled to so many rows and columns; 0: they stay as they are
    spectral_norm: bool = False  # of the residual convolutions
    # A layer norm stands behind each convolution and dense layer, before its ReLU; none in the LSTM of texts.
    normalised: bool = False

    @property
    def channels(self) -> int:
        """The channels of a stacked picture; the numbers of a stacked vector."""
        shape = self.observation.shape
        is_picture = self.observation.is_picture
        planes = Symbols.nb_planes if is_picture and self.observation.vocabulary else 1  # that become of each
        return self.stack * math.prod(shape[:-2] if is_picture else shape) * planes


class Trunk(nn.Module):
    """Features [B, `nb_features`] of stacked observations [B, S, ...], those of pictures in the spec's precision.

    Raises UserError where a picture is smaller than what the architecture's convolutions look at.
    """

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__()
        self.observation = spec.observation
        self.nb_features: int
        self.symbols: Symbols | None = None
        self.inner = nn.ModuleList(Trunk(replace(spec, observation=field)) for field in spec.observation.inner)
        # Vectors are read in float32: bfloat16 would cut their numbers to three digits.
        self.precision = spec.precision if self.is_convolution else torch.float32
        self._inputs = spec.stack * math.prod(self.observation.shape)
        self._stack_bytes: int = self._inputs * getattr(torch, self.observation.dtype).itemsize
        if self.inner:
            self.body = nn.Sequential()
            self._kept = [sum(trunk.nb_features for trunk in self._inner)]
        elif self.observation.is_picture:
            if spec.observation.vocabulary:
                self.symbols = Symbols(spec.observation.vocabulary)
                self._inputs *= Symbols.nb_planes  # of the first convolution
            self.body = TRUNKS[spec.architecture](spec.channels)
            if spec.spectral_norm:
                normalise_residual(self.body)
            if spec.normalised:
                self.body = layer_normalised(self.body)
            self._kept = _kept(self.body, spec)
            if spec.pool:
                _check_pool(self.body, spec)
                self.body.append(nn.AdaptiveMaxPool2d(spec.pool))
                self._kept = _kept(self.body, spec)
        elif self.observation.vocabulary:
            self.body = nn.Sequential(Words(self.observation.vocabulary))
            self._kept = [Words.kept(self._inputs // spec.stack), Words.nb_features]
        else:
            norm = [nn.LayerNorm(spec.features)] if spec.normalised else []
            self.body = nn.Sequential(nn.Linear(self._inputs, spec.features), *norm, nn.ReLU())
            self._kept = [spec.features]
        self.nb_features = self._kept[-1]
        pools = any(isinstance(layer, nn.MaxPool2d) for layer in self.body)
        self._channels_last = pools or spec.precision != torch.float32

    @property
    def is_convolution(self) -> bool:
        """Whether it sees a picture alone, and not several kinds of observations, each through a trunk of its own."""
        return self.observation.is_picture and not self.inner

    @property
    def _inner(self) -> list["Trunk"]:
        return [trunk for trunk in self.inner if isinstance(trunk, Trunk)]

    def forward(self, obs: Tensor) -> Tensor:
        """Return the features of stacked observations [B, S, ...] of any dtype."""
        with self.rounding(obs):
            return self.features(obs)

    def rounding(self, obs: Tensor) -> AbstractContextManager[object]:
        """Return the context in which products are computed in the trunk's precision."""
        if self.precision == torch.float32:
            return nullcontext()
        return torch.autocast(obs.device.type, self.precision)

    def features(self, obs: Tensor) -> Tensor:
        """Return what `forward` does, within `rounding`."""
        if self.inner:
            kinds = zip(self._inner, self._unpack(obs), strict=True)
            return torch.cat([trunk(kind).float() for trunk, kind in kinds], 1)  # [B, F]
        if self.observation.vocabulary and not self.observation.is_picture:
            read: Tensor = self.body(obs[:, -1])  # the newest text
            return read
        if not self.observation.is_picture:
            x: Tensor = self.body(obs.float().flatten(1) * self.observation.scale)
            return x
        x = self._first_layer(obs)
        for layer in itertools.islice(self.body, 1, None):
            x = layer(x)
        return x.flatten(1)

    def _unpack(self, obs: Tensor) -> list[Tensor]:
        """Return the observations [B, S, *shape] of each kind, see `environment_spec.unpack`."""
        fields = self.observation.inner
        parts = torch.split(obs, [field.nbytes for field in fields], -1)
        # A copy begins where numbers of several bytes may begin.
        views = [part.clone(memory_format=torch.contiguous_format) for part in parts]
        return [_numbers(view, field) for view, field in zip(views, fields, strict=True)]

    @property
    def convolutions(self) -> list[nn.Conv2d]:
        """The layers of a plain trunk that have weights, in order."""
        return [layer for layer in self.body if isinstance(layer, nn.Conv2d)]

    def update_bytes(self, rows: int, learned: int, beside: int = 0) -> int:
        """Estimate the bytes that an update holds at once for so many rows, `learned` of them with gradient.

        Another pass may see `beside` of these rows at the same time, without gradient.
        """
        if self.inner:
            parts = sum(trunk.update_bytes(rows, learned, beside) for trunk in self._inner)
            return parts + 2 * rows * self._stack_bytes
        size = self.precision.itemsize
        seen = self._inputs + 2 * max(self._kept)  # its outputs, too, where its channels keep the usual order
        # A CPU's library sorts the inputs and outputs of the first layers anew for the gradients of their weights.
        differentiated = 2 * self._inputs + sum(self._kept) + 2 * max(self._kept)
        # Two threads were seen to hold more than both passes need by themselves: hence the share of the outputs.
        own = max(rows * seen, learned * differentiated)
        return 2 * rows * self._stack_bytes + size * (own + beside * (seen + max(self._kept) // 4))

    def _first_layer(self, obs: Tensor) -> Tensor:
        """Convolve bytes as they are: to scale the weights is cheaper than to scale the pictures.

        Bytes are brought into another order twice as fast as numbers.
        """
        first = self.body[0]
        assert isinstance(first, nn.Conv2d)
        # Channels come last in memory wherever that is faster: a CPU computes gradients 1.4 times as fast so, and pools
        # ten times as fast; with neither, it convolves float32 up to 1.5 times as fast in the usual order.
        last = self._channels_last or torch.is_grad_enabled() or not obs.is_cpu
        layout = torch.channels_last if last else torch.contiguous_format
        x = obs.flatten(1, -3)  # [B, S * C, H, W]
        if self.symbols is not None:
            x = self.symbols(x)
        x = x.contiguous(memory_format=layout).to(self.precision)
        return functional.conv2d(x, first.weight * self.observation.scale, first.bias, first.stride, first.padding)


class Encoder(Trunk):
    """A trunk and a dense layer behind it: features [B, F] float32."""

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__(spec)
        self.dense = nn.Linear(self.nb_features, spec.features)
        self.norm = nn.LayerNorm(spec.features) if spec.normalised else None
        self.nb_features = spec.features
        if spec.architecture == "deep-football":
            lecun_normal(self.dense)
        if self.is_convolution and not spec.learns:
            self.body[1:].to(spec.precision)
            self.dense.to(spec.precision)

    def forward(self, obs: Tensor) -> Tensor:
        """Return the features of stacked observations [B, S, ...] of any dtype."""
        with self.rounding(obs):
            x = self.dense(self.features(obs))  # [B, F]
            return functional.relu(x if self.norm is None else self.norm(x)).float()


def _numbers(view: Tensor, field: Field) -> Tensor:
    """Return the numbers [..., *shape] of a kind's bytes [..., n]."""
    if field.dtype == "bool":
        places = torch.arange(7, -1, -1, dtype=torch.uint8, device=view.device)  # as `numpy.packbits` orders them
        bits = ((view[..., None] >> places) & 1).flatten(-2)  # [..., 8 n]
        return bits[..., : math.prod(field.shape)].reshape(*view.shape[:-1], *field.shape)
    return view.view(getattr(torch, field.dtype)).reshape(*view.shape[:-1], *field.shape)


def _check_pool(body: nn.Sequential, spec: EncoderSpec) -> None:
    with torch.no_grad():
        height, width = body(torch.zeros(1, spec.channels, *spec.observation.shape[-2:])).shape[-2:]
    if min(height, width) < spec.pool:
        raise UserError(
            f"--pool: the last feature maps of --architecture {spec.architecture} are {height}x{width} here; "
            f"expected at most {min(height, width)}, or 0, got {spec.pool}"
        )


def _kept(body: nn.Sequential, spec: EncoderSpec) -> list[int]:
    shape = spec.observation.shape
    try:
        return kept_numbers(body, (spec.channels, *shape[-2:]), 8 // spec.precision.itemsize)
    except RuntimeError as error:
        raise UserError(
            f"--architecture {spec.architecture}: its convolutions do not fit pictures of {'x'.join(map(str, shape))} "
            "([H, W] or [C, H, W]); choose one that takes smaller ones, such as deep"
        ) from error

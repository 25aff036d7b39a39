"""The networks of the Rainbow agents: a convolutional trunk and noisy duelling heads.

Parameter names are those of snapshots in circulation and must not change. Letters: B batch, S stack, D embedding,
F features, H hidden units, N quantiles, A actions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from rainbow_iqn_apex.agents.networks.encoder import EncoderSpec, Trunk
from rainbow_iqn_apex.agents.networks.network import Network, acting_tensors
from rainbow_iqn_apex.agents.ops.shapes import check_shapes

_AT_ONCE = 2**18  # numbers
# The architectures whose convolutions have the names of 2019's snapshots: conv1, conv2 and so on.
PUBLISHED = ("canonical", "data-efficient")


class NoisyWeight(NamedTuple):
    """The weight of a noisy layer under factorised noise: mu + sigma · (noise_out ⊗ noise_in), equation 9."""

    mu: Tensor  # [outputs, inputs]
    sigma: Tensor  # [outputs, inputs]
    noise_out: Tensor  # [outputs]
    noise_in: Tensor  # [inputs]


def factorised_noise(size: int, generator: torch.Generator, device: torch.device | str) -> Tensor:
    """Draw f(x) = sgn(x) √|x| [size] float32 of standard normal x, for factorised noise (equations 10 and 11)."""
    x = torch.randn(size, generator=generator, device=device)  # [size]
    return x.sign() * x.abs().sqrt()


def effective_weight(layers: Sequence[NoisyWeight], dtype: torch.dtype) -> Tensor:
    """Return weights of several noisy layers with equally many inputs under their noise, stacked, in `dtype`.

    Gradients flow into mu and sigma. The outer products of the noise are never made, neither here nor in the backward
    pass: for large layers reading and writing them would cost more than all the arithmetic.

    Returns:
        [Σ outputs, inputs], the first layer's rows first.
    """
    stacked: Tensor = _EffectiveWeight.apply(dtype, *(tensor for layer in layers for tensor in layer))  # type: ignore[no-untyped-call]
    return stacked


class _EffectiveWeight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: Tensor) -> Tensor:
        layers = _layers(tensors)
        sizes = [len(layer.mu) for layer in layers]
        stacked = layers[0].mu.new_empty((sum(sizes), layers[0].mu.shape[1]), dtype=dtype)
        for layer, rows in zip(layers, torch.split(stacked, sizes), strict=True):
            _write(layer, rows)
        ctx.save_for_backward(*(noise for layer in layers for noise in (layer.noise_out, layer.noise_in)))
        return stacked

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        noises = ctx.saved_tensors
        outs, ins = noises[::2], noises[1::2]
        gradients: list[Tensor | None] = [None]
        for rows, noise_out, noise_in in zip(torch.split(gradient, [len(out) for out in outs]), outs, ins, strict=True):
            of_sigma = (rows * noise_in).mul_(noise_out[:, None])  # [outputs, inputs] in the noise's precision
            gradients += [rows.to(noise_in.dtype), of_sigma, None, None]
        return tuple(gradients)


def _write(layer: NoisyWeight, rows: Tensor) -> None:
    """Write the effective weight into `rows`, on a CPU in pieces that stay in its cache."""
    at_once = max(1, _AT_ONCE // rows.shape[1]) if rows.device.type == "cpu" else len(rows)
    parts = (torch.split(tensor, at_once) for tensor in (rows, layer.mu, layer.sigma, layer.noise_out[:, None]))
    for out, mu, sigma, noise_out in zip(*parts, strict=True):
        noisy = sigma * layer.noise_in  # [outputs, inputs]
        out.copy_(torch.addcmul(mu, noisy, noise_out, out=noisy))


def _layers(tensors: tuple[Tensor, ...]) -> list[NoisyWeight]:
    return [NoisyWeight(*tensors[i : i + 4]) for i in range(0, len(tensors), 4)]


def modulated_hidden(
    cosines: Tensor, embed_weight: Tensor, embed_bias: Tensor, features: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    """Compute relu(W · (relu(E · cos + e) ⊙ features) + b): features modulated by embedded quantile fractions.

    These are equation 4's φ of IQN (arXiv 1806.06923), the Hadamard product, and a hidden layer.

    Written by hand because its temporaries [N · B, F] are the largest of an update: as few of them as possible, and
    changed in place.
    It is [N * B, H], quantile-major as the cosines [N * B, D]: row n · B + b. All arguments are of one dtype: E [F, D],
    e [F], features [B, F], W [H, F], b [H].
    """
    check_shapes(
        cosines=(cosines, "N*B D"),
        embed_weight=(embed_weight, "F D"),
        embed_bias=(embed_bias, "F"),
        features=(features, "B F"),
        weight=(weight, "H F"),
        bias=(bias, "H"),
    )
    if len(cosines) % len(features):
        raise ValueError(f"{len(cosines)} rows are not whole quantiles of {len(features)} samples")
    tensors = (cosines, embed_weight, embed_bias, features, weight, bias)
    learns = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
    hidden: Tensor = _ModulatedHidden.apply(learns, *tensors)  # type: ignore[no-untyped-call]
    return hidden


class _ModulatedHidden(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        learns: bool,
        cosines: Tensor,
        embed_weight: Tensor,
        embed_bias: Tensor,
        features: Tensor,
        weight: Tensor,
        bias: Tensor,
    ) -> Tensor:
        embedded = torch.addmm(embed_bias, cosines, embed_weight.t()).relu_()  # [N * B, F]
        by_sample = embedded.view(-1, *features.shape)  # [N, B, F]
        if not learns:
            modulated = by_sample.mul_(features).view_as(embedded)
            # The weight stands first: with few rows a CPU is faster so.
            return torch.addmm(bias[:, None], weight, modulated.t()).relu_().t()  # [N * B, H]
        modulated = (by_sample * features).view_as(embedded)  # [N * B, F]
        hidden = torch.addmm(bias, modulated, weight.t()).relu_()  # [N * B, H]
        ctx.save_for_backward(cosines, features, weight, embedded, modulated, hidden)
        return hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        cosines, features, weight, embedded, modulated, hidden = ctx.saved_tensors
        gradient = torch.ops.aten.threshold_backward(gradient, hidden, 0)  # [N * B, H]
        of_weight, of_bias = gradient.t() @ modulated, gradient.sum(0)
        flowing = gradient @ weight  # [N * B, F]
        of_features = torch.mul(flowing, embedded, out=modulated).view(-1, *features.shape).sum(0)
        flowing.view(-1, *features.shape).mul_(features)
        torch.ops.aten.threshold_backward.grad_input(flowing, embedded, 0, grad_input=flowing)
        of_embed_weight, of_embed_bias = flowing.t() @ cosines, flowing.sum(0)
        return None, None, of_embed_weight, of_embed_bias, of_features, of_weight, of_bias


class NoisyLinear(nn.Module):
    """Linear layer with factorised Gaussian noise (Fortunato et al. 2018, arXiv 1706.10295, equation 9).

    Deviations of weights begin at std / sqrt(inputs). Those of biases do so in the paper, and with `quiet_biases`; in
    2019's snapshots they begin at std / sqrt(outputs), which for few outputs is many times as much.
    Snapshots hold the noise under its usual names; here the weight's is kept as its two factors. With a `std` of 0
    there is none, and its deviations are neither used nor learned.
    """

    OWN_BUFFERS: ClassVar[frozenset[str]] = frozenset({"bias_epsilon"})  # each process draws its noise
    bias_epsilon: Tensor  # also the factor of the weight's rows
    noise_in: Tensor  # the factor of its columns

    def __init__(self, inputs: int, outputs: int, std: float, *, quiet_biases: bool = False) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        bias_std = std / math.sqrt(inputs if quiet_biases else outputs)
        self.weight_mu = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        sigma = torch.full((outputs, inputs), std / math.sqrt(inputs))
        self.weight_sigma = nn.Parameter(sigma, requires_grad=std > 0)
        self.bias_mu = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.bias_sigma = nn.Parameter(torch.full((outputs,), bias_std), requires_grad=std > 0)
        self.register_buffer("bias_epsilon", torch.zeros(outputs))
        self.register_buffer("noise_in", torch.zeros(inputs), persistent=False)

    @property
    def weight_epsilon(self) -> Tensor:
        """Return the weight's noise [outputs, inputs]."""
        return torch.outer(self.bias_epsilon, self.noise_in)

    def noisy(self) -> NoisyWeight:
        """Return the weight with the present noise."""
        return NoisyWeight(self.weight_mu, self.weight_sigma, self.bias_epsilon, self.noise_in)

    def bias(self) -> Tensor:
        """Return the bias [outputs] with the present noise."""
        return torch.addcmul(self.bias_mu, self.bias_sigma, self.bias_epsilon)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "weight_epsilon"] = self.weight_epsilon

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, metadata: Any, strict: bool, missing: list[str], *rest: Any
    ) -> None:
        name = prefix + "weight_epsilon"
        others = {key: value for key, value in state_dict.items() if key != name}
        super()._load_from_state_dict(others, prefix, metadata, strict, missing, *rest)
        if name not in state_dict:
            missing.append(name)
            return
        row = int(self.bias_epsilon.abs().argmax())
        columns = state_dict[name][row].to(self.noise_in) / self.bias_epsilon[row]  # [inputs], NaN without noise
        self.noise_in.copy_(columns.nan_to_num(0, 0, 0))


class Weights(NamedTuple):
    """The weights of the heads for one noise draw, ready for use; an actor makes them once per draw.

    Both hidden layers stand in one matrix, and what multiplies large tensors has the network's precision.
    """

    hidden_weight: Tensor  # [2 H, F] value stream above advantage stream
    hidden_bias: Tensor  # [2 H]
    value_weight: Tensor  # [outputs, H]
    value_bias: Tensor  # [outputs]
    advantage_weight: Tensor  # [A * outputs, H]
    advantage_bias: Tensor  # [A * outputs]


@dataclass(frozen=True)
class NetworkSpec:
    """Sizes and kinds of a network's layers."""

    trunk: EncoderSpec  # its features are the units of each hidden layer
    nb_actions: int
    noisy_std: float
    layer_norm: bool = False  # behind the hidden layers of both streams
    quiet_biases: bool = False  # see NoisyLinear


def _published_names(trunk: Trunk, architecture: str) -> dict[str, nn.Module]:
    """Return the modules of a trunk under the names that snapshots have for them."""
    if not trunk.observation.is_picture:
        return {"fc1": trunk.body[0]}
    if trunk.inner or trunk.symbols is not None or architecture not in PUBLISHED:
        return {"trunk": trunk}
    return {f"conv{i}": layer for i, layer in enumerate(trunk.convolutions, start=1)}


class DuellingNetwork(Network):
    """Trunk and noisy duelling heads with `outputs` numbers per action (Wang et al. 2016, arXiv 1511.06581).

    The trunk is that of the architecture for pictures, and one linear layer for vectors.
    """

    def __init__(self, spec: NetworkSpec, outputs: int) -> None:
        super().__init__()
        self.nb_actions = spec.nb_actions
        self._outputs = outputs
        self._hidden_size = hidden_size = spec.trunk.features
        self._precision = spec.trunk.precision
        self._is_noisy = spec.noisy_std > 0
        trunk = Trunk(spec.trunk)
        self._trunk = (trunk,)  # in a tuple, as its weights are parameters under other names
        for name, module in _published_names(trunk, spec.trunk.architecture).items():
            setattr(self, name, module)
        self.nb_features = trunk.nb_features
        layer = partial(NoisyLinear, std=spec.noisy_std, quiet_biases=spec.quiet_biases)
        self.fcnoisy_h_v = layer(self.nb_features, hidden_size)
        self.fcnoisy_h_a = layer(self.nb_features, hidden_size)
        self.fcnoisy_z_v = layer(hidden_size, outputs)
        self.fcnoisy_z_a = layer(hidden_size, spec.nb_actions * outputs)
        norms = [nn.LayerNorm(hidden_size) for _ in range(2)] if spec.layer_norm else []
        self.norms = nn.ModuleList(norms)  # of the value stream and of the advantage stream

    @torch.no_grad()
    def draw_noise(self, generator: torch.Generator) -> None:
        """Draw new noise for all noisy layers; it holds until the next call."""
        if not self._is_noisy:
            return
        layers = (self.fcnoisy_h_v, self.fcnoisy_h_a, self.fcnoisy_z_v, self.fcnoisy_z_a)
        factors = [factor for layer in layers for factor in (layer.noise_in, layer.bias_epsilon)]
        sizes = [len(factor) for factor in factors]
        noise = factorised_noise(sum(sizes), generator, factors[0].device)  # at once: drawing costs more than numbers
        torch._foreach_copy_(factors, torch.split(noise, sizes))

    def published(self) -> dict[str, Tensor]:
        """Return copies of what acts, weights of large products in the precision that rounds them anyway."""
        return {
            name: tensor.detach().to(self._precision if self._is_rounded(name) else tensor.dtype, copy=True)
            for name, tensor in acting_tensors(self).items()
        }

    def _is_rounded(self, name: str) -> bool:
        return name.endswith(("weight", "weight_mu", "weight_sigma")) and not name.startswith(
            ("fcnoisy_z", "fc1", "norms.", "trunk.inner.")
        )

    def weights(self) -> Weights:
        """Return the weights for the present noise."""
        hidden, last = (self.fcnoisy_h_v, self.fcnoisy_h_a), (self.fcnoisy_z_v, self.fcnoisy_z_a)
        if self._is_noisy:
            weight = effective_weight([layer.noisy() for layer in hidden], self._precision)
            both = effective_weight([layer.noisy() for layer in last], torch.float32)
            value, advantage = torch.split(both, [len(layer.bias_mu) for layer in last])
            biases = [layer.bias() for layer in (*hidden, *last)]
        else:
            weight = torch.cat([layer.weight_mu for layer in hidden]).to(self._precision)
            value, advantage = (layer.weight_mu for layer in last)
            biases = [layer.bias_mu for layer in (*hidden, *last)]
        bias = torch.cat(biases[:2]).to(self._precision)
        return Weights(weight, bias, value, biases[2], advantage, biases[3])

    @property
    def feature_bytes(self) -> int:
        """Bytes of the features [F] of a sample."""
        return self.nb_features * self._precision.itemsize

    def trunk_bytes(self, batch: int) -> int:
        """Estimate the bytes that an update's trunk holds at once, with the pass of a target network beside it."""
        return self._trunk[0].update_bytes(batch, batch, batch)

    def features(self, obs: Tensor) -> Tensor:
        """Return features [B, F] of stacked observations [B, S, ...], in the network's precision."""
        features: Tensor = self._trunk[0](obs)
        return features.to(self._precision)

    def activated(self, hidden: Tensor) -> Tensor:
        """Return the ReLU of hidden layers [M, 2 H], or of the advantage stream's [M, H], each normalised by itself."""
        if self.norms:
            streams = torch.split(hidden.float(), self._hidden_size, 1)
            norms = list(self.norms)[-len(streams) :]
            hidden = torch.cat([norm(stream) for norm, stream in zip(norms, streams, strict=True)], 1)
        return functional.relu(hidden)

    def duel(self, hidden: Tensor, weights: Weights) -> Tensor:
        """Compute v + a - mean(a): hidden units [M, 2 H] -> [M, A, outputs] float32.

        The last layer is small and computed in float32: actions often differ by less than bfloat16 can tell apart.
        """
        of_value, of_advantage = hidden.float().chunk(2, dim=1)
        value = functional.linear(of_value, weights.value_weight, weights.value_bias)
        advantage = functional.linear(of_advantage, weights.advantage_weight, weights.advantage_bias)
        value = value.view(-1, 1, self._outputs)
        advantage = advantage.view(-1, self.nb_actions, self._outputs)
        return value + advantage - advantage.mean(1, keepdim=True)


class QuantileNetwork(DuellingNetwork):
    """IQN with Rainbow's heads: quantiles of the return at given fractions (arXiv 1806.06923, equation 4)."""

    _frequencies: Tensor

    def __init__(self, spec: NetworkSpec, embedding_dim: int) -> None:
        super().__init__(spec, outputs=1)
        self.iqn_fc = nn.Linear(embedding_dim, self.nb_features)
        self.register_buffer("_frequencies", math.pi * torch.arange(1, embedding_dim + 1), persistent=False)

    def forward(self, obs: Tensor, taus: Tensor, weights: Weights) -> Tensor:
        """Return quantiles [N, B, A] of stacked observations [B, S, ...] at fractions taus [N, B]."""
        hidden = self._hidden(obs, taus, weights.hidden_weight, weights.hidden_bias)
        return self.duel(hidden, weights).view(*taus.shape, self.nb_actions)

    def best_actions(self, obs: Tensor, taus: Tensor, weights: Weights) -> Tensor:
        """Return the actions [B] of the largest mean quantile, as `forward` would give them, at half its cost.

        The value stream adds the same to all actions, and is left out.
        """
        size = len(weights.hidden_bias) // 2
        hidden = self._hidden(obs, taus, weights.hidden_weight[size:], weights.hidden_bias[size:])
        mean = hidden.float().view(*taus.shape, size).mean(0)  # [B, H]
        return functional.linear(mean, weights.advantage_weight, weights.advantage_bias).argmax(1)

    def _hidden(self, obs: Tensor, taus: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return hidden units [N * B, rows of the weight], quantile-major."""
        cosines = torch.cos(taus.reshape(-1, 1) * self._frequencies).to(self._precision)  # [N * B, embedding]
        embed_weight, embed_bias = (part.to(self._precision) for part in (self.iqn_fc.weight, self.iqn_fc.bias))
        features = self.features(obs)  # [B, F]
        if not self.norms:
            return modulated_hidden(cosines, embed_weight, embed_bias, features, weight, bias)
        embedded = functional.relu(functional.linear(cosines, embed_weight, embed_bias))  # [N * B, F]
        modulated = embedded.view(-1, *features.shape) * features  # [N, B, F]
        return self.activated(functional.linear(modulated.flatten(0, 1), weight, bias))


class CategoricalNetwork(DuellingNetwork):
    """Rainbow's C51 network: log-probabilities of atoms for each action (arXiv 1710.02298)."""

    def forward(self, obs: Tensor, weights: Weights) -> Tensor:
        """Return log-probabilities [B, A, atoms] of stacked observations [B, S, ...]."""
        features = self.features(obs)  # [B, F]
        hidden = self.activated(functional.linear(features, weights.hidden_weight, weights.hidden_bias))
        return functional.log_softmax(self.duel(hidden, weights), dim=2)

"""Noise for noisy layers (Fortunato et al. 2018, arXiv 1706.10295)."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_AT_ONCE = 2**18  # numbers


class NoisyWeight(NamedTuple):
    """The weight of a noisy layer under factorised noise: mu + sigma · (noise_out ⊗ noise_in), equation 9."""

    mu: Tensor  # [outputs, inputs]
    sigma: Tensor  # [outputs, inputs]
    noise_out: Tensor  # [outputs]
    noise_in: Tensor  # [inputs]


def factorised_noise(size: int, generator: torch.Generator, device: torch.device | str) -> Tensor:
    """Draw f(x) = sgn(x) √|x| of `size` standard normal x: one factor of factorised noise (equations 10 and 11).

    Args:
        size: the number of a layer's inputs, or of its outputs.
        generator: of the same device.
        device: where the result lives.

    Returns:
        [size] float32.
    """
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

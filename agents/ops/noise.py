"""Noise for noisy layers (Fortunato et al. 2018, arXiv 1706.10295)."""

import torch
from torch import Tensor


def factorised_noise(size: int, generator: torch.Generator | None, device: torch.device | str) -> Tensor:
    """Draw f(x) = sgn(x) √|x| of `size` standard normal x: one factor of factorised noise (equations 10 and 11).

    Args:
        size: the number of a layer's inputs, or of its outputs.
        generator: of the same device; None for torch's global one.
        device: where the result lives.

    Returns:
        [size] float32.
    """
    x = torch.randn(size, generator=generator, device=device)  # [size]
    return x.sign() * x.abs().sqrt()

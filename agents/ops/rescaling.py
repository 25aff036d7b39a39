"""Invertible value rescaling in the place of clipped rewards (Pohlen et al. 2018, arXiv 1805.11593, section 3.2)."""

import torch
from torch import Tensor

EPSILON = 1e-3  # of R2D2; the term that keeps the inverse Lipschitz continuous


def rescale(x: Tensor) -> Tensor:
    """Compute h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x, for values of any shape."""
    # |x| / (sqrt(|x| + 1) + 1) is sqrt(|x| + 1) - 1 without the difference of nearly equal numbers around 0.
    return x / ((x.abs() + 1).sqrt() + 1) + EPSILON * x


def unscale(y: Tensor) -> Tensor:
    """Compute h^-1(y) = sign(y) (((sqrt(1 + 4 epsilon (|y| + 1 + epsilon)) - 1) / (2 epsilon))^2 - 1).

    Computed as |y| times a factor, since the closed form subtracts nearly equal numbers for small y in float32.
    """
    # With u = sqrt(|x| + 1) - 1, h(x) = y says that epsilon u^2 + (1 + 2 epsilon) u = |y|.
    b = 1 + 2 * EPSILON
    u = 2 * y.abs() / (b + (b * b + 4 * EPSILON * y.abs()).sqrt())
    return torch.sign(y) * u * (u + 2)

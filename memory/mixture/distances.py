"""Distances between the features of sequences: how far the network's view of their rows has moved.

Features of a row are the hidden layer before the heads. A reference (features that were recorded when a row was
played, or those of another row) is compared with what the present network computes. Letters: T rows, B sequences, F
features.
"""

import torch
from torch import Tensor
from torch.nn import functional

from rainbow_iqn_apex.memory.mixture.spec import COSINE, DISTANCES, P_NORM


def p_norm(reference: Tensor, present: Tensor, p: float) -> Tensor:
    """Compute the p-norm of the difference of two rows' features [T, B, F]: [T, B] float64, (Σ |x − y|^p)^(1/p)."""
    difference = (present.double() - reference.double()).abs()  # [T, B, F]
    largest = difference.amax(-1, keepdim=True)  # [T, B, 1] taken out first: its power may be 0 or infinite
    scaled = difference / torch.where(largest > 0, largest, 1)  # [T, B, F]
    norm: Tensor = torch.linalg.vector_norm(scaled, p, dim=-1) * largest.squeeze(-1)
    return norm


def cosine_distance(reference: Tensor, present: Tensor) -> Tensor:
    """Compute 1 − cos of the angle between two rows' features [T, B, F]: [T, B] float64, from 0 to 2.

    The distance of a vector of zeros to any other is 1.
    """
    return 1 - functional.cosine_similarity(present.double(), reference.double(), dim=-1)


def kl_divergence(reference: Tensor, present: Tensor) -> Tensor:
    """Compute KL(softmax(reference) ‖ softmax(present)) of features [T, B, F]: [T, B] float64.

    The reference comes first: it is what was recorded, as in KL(μ‖π) of a behaviour and a present policy.
    """
    log_reference, log_present = (features.double().log_softmax(-1) for features in (reference, present))  # [T, B, F]
    return (log_reference.exp() * (log_reference - log_present)).sum(-1)


def distance(name: str, reference: Tensor, present: Tensor, learnable: Tensor, p: float) -> Tensor:
    """Average a distance of features over the rows of each sequence that may be learned from.

    All is computed in float64, as powers of features overflow float32.

    Args:
        name: one of `memory.mixture.spec.DISTANCES`.
        reference: [T, B, F] float, of another row or another network.
        present: [T, B, F] float, of the present network.
        learnable: [T, B] bool; a sequence without such a row has the distance 0.
        p: of the p-norm.

    Returns:
        [B] float32.

    Raises:
        ValueError: the shapes do not fit, or there is no such distance.
    """
    if reference.dim() != 3 or reference.shape != present.shape:
        raise ValueError(f"features {tuple(reference.shape)} and {tuple(present.shape)} must both be [T, B, F]")
    if learnable.shape != present.shape[:2]:
        raise ValueError(f"learnable {tuple(learnable.shape)} must be [T, B] of features {tuple(present.shape)}")
    if name not in DISTANCES:
        raise ValueError(f"there is no distance {name!r}")
    if name == P_NORM:
        rows = p_norm(reference, present, p)  # [T, B]
    else:
        rows = (cosine_distance if name == COSINE else kl_divergence)(reference, present)  # [T, B]
    total = torch.where(learnable, rows, 0).sum(0)  # [B]
    return (total / learnable.sum(0).clamp(min=1)).float()

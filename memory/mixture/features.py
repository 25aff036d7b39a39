"""Distances between the features of sequences: how far the network's view of their rows has moved.

Features of a row are the hidden layer before the heads. The present network's are compared with those that were
recorded when the row was played, or with those of the newest row. Letters: T rows of a sequence that may be learned
from, B sequences, F features.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

from rainbow_iqn_apex.memory.mixture.pool import Pool, Sequences
from rainbow_iqn_apex.memory.mixture.spec import COSINE, P_NORM, Sampling
from rainbow_iqn_apex.memory.rows import StepType

FEATURES = "features"  # the extra of a row that its actor has recorded
AT_ONCE = 64  # sequences measured together: what a measurement holds in memory is bounded
Measure = Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], Tensor]  # rows, state -> [rows with full stack, B, F]


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
    """
    if name == P_NORM:
        rows = p_norm(reference, present, p)  # [T, B]
    else:
        rows = (cosine_distance if name == COSINE else kl_divergence)(reference, present)  # [T, B]
    total = torch.where(learnable, rows, 0).sum(0)  # [B]
    return (total / learnable.sum(0).clamp(min=1)).float()


class Features:
    """Distances of a pool's sequences, by `measure`, which computes the present features."""

    def __init__(self, pool: Pool, settings: Sampling, measure: Measure | None) -> None:
        self.measure = measure
        self._pool = pool
        self._settings = settings
        self._middle = slice(pool.spec.prefix, pool.spec.prefix + pool.spec.length)

    def changes(self, slots: Tensor) -> Tensor:
        """Compute how far the features of the slots [B] have moved since they were recorded: [B] float32."""
        return self._compare(slots, lambda rows, _: rows[f"extras.{FEATURES}"][self._middle])

    def remoteness(self, slots: Tensor, newest: Tensor) -> Tensor:
        """Compute how far the features of the slots [B] are from the last row of the slot `newest` [1]: [B] float32.

        Both are the present network's, and the newest row is the reference.
        """
        row = self._features(self._pool.gather(newest))[-1]  # [1, F]
        return self._compare(slots, lambda _, present: row.expand_as(present))

    def _compare(self, slots: Tensor, reference: Callable[[Mapping[str, Tensor], Tensor], Tensor]) -> Tensor:
        """Compute the distances of the slots [B] from what `reference` makes of rows and present [T, B, F]: [B]."""
        spec = self._pool.spec
        distances = list[Tensor]()
        for part in torch.split(slots, AT_ONCE):
            sequences = self._pool.gather(part)
            present = self._features(sequences)[spec.burn_in : spec.burn_in + spec.length]  # [T, B, F]
            learnable = sequences.rows["step_type"][self._middle] != StepType.LAST  # [T, B]
            compared = (reference(sequences.rows, present), present, learnable)
            distances.append(distance(self._settings.distance, *compared, self._settings.norm))
        return torch.cat(distances)

    @torch.no_grad()
    def _features(self, sequences: Sequences) -> Tensor:
        """Measure all rows from the first with a full stack on: [rows, B, F]."""
        if self.measure is None:
            raise RuntimeError("a mixture with distances has no measure of features")
        spec = self._pool.spec
        features = self.measure(sequences.rows, sequences.state).to(self._pool.device)  # [rows, B, F]
        wanted = (spec.sample_window - (spec.stack - 1), len(sequences.numbers))
        if features.dim() != 3 or features.shape[:2] != wanted:
            raise ValueError(f"features {tuple(features.shape)} must be [{wanted[0]}, {wanted[1]}, F]")
        return features

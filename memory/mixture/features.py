"""Measures sequences with the present network, and compares them with what was recorded, or with the newest row.

Letters: T rows of a sequence that may be learned from, B sequences, F features.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from rainbow_iqn_apex.memory.mixture.distances import distance
from rainbow_iqn_apex.memory.mixture.pool import Pool, Sequences
from rainbow_iqn_apex.memory.mixture.spec import Sampling
from rainbow_iqn_apex.memory.rows import StepType

FEATURES = "features"  # the extra of a row that its actor has recorded
AT_ONCE = 64  # sequences measured together: what a measurement holds in memory is bounded

Measure = Callable[[Mapping[str, Tensor], Mapping[str, Tensor]], Tensor]  # rows, state -> [rows with full stack, B, F]


class Features:
    """Distances of a pool's sequences, by a `measure` that the owner sets before the first is asked for."""

    def __init__(self, pool: Pool, settings: Sampling) -> None:
        self.measure: Measure | None = None
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
        spec, distances = self._pool.spec, list[Tensor]()
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

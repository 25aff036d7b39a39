"""Feature vectors of rows: what elite and attentive replay compare (Sun et al. 2020, AAAI 34).

Letters: T rows, B batch, F features of the layer before the heads, K numbers of a vector.
"""

import copy
import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from rainbow_iqn_apex.agents.networks.core import Core, Inputs, RecurrentState

_PROJECTION_SEED = 0  # all processes of all runs have the same projection


class Features:
    """Computes feature vectors with the present core, or with a copy of it while a batch is prepared ahead."""

    def __init__(self, core: Core, projected: int, device: torch.device) -> None:
        self.size = projected or core.nb_features  # K
        self._core = self._measuring = core
        self._copy: Core | None = None
        self._projection = _projection(core.nb_features, projected).to(device) if projected else None

    def of(self, features: Tensor) -> Tensor:
        """Return the vectors [..., K] float32 of the core's outputs [..., F]."""
        if self._projection is None:
            return features
        return features.matmul(self._projection)

    @torch.inference_mode()
    def measure(self, inputs: Inputs, recurrent: RecurrentState) -> Tensor:
        """Return the vectors [T, B, K] of sequences."""
        features: Tensor = self._measuring(inputs, recurrent)[0]  # [T, B, F]
        return self.of(features)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Measure with a copy of the present weights meanwhile: another thread may do so while they are updated."""
        if self._copy is None:
            self._copy = copy.deepcopy(self._core).requires_grad_(False)
        with torch.no_grad():
            torch._foreach_copy_(list(self._copy.parameters()), list(self._core.parameters()))
        self._measuring = self._copy
        try:
            yield
        finally:
            self._measuring = self._core


def _projection(features: int, numbers: int) -> Tensor:
    """Return a random matrix [F, K] that keeps lengths on average (Johnson and Lindenstrauss 1984)."""
    generator = torch.Generator().manual_seed(_PROJECTION_SEED)
    return torch.randn(features, numbers, generator=generator) / math.sqrt(numbers)

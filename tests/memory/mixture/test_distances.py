"""Distances are those of a slow transcription, finite for every feature, and 0 for equal features."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex.memory.mixture.features import distance
from rainbow_iqn_apex.memory.mixture.spec import DISTANCES
from tests.ground_truth import mixture as truth

T, B, F = 5, 7, 3
Function = Callable[..., Tensor]


def features(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    learnable = torch.rand(T, B, generator=generator) > 0.3
    learnable[0] = True
    reference, present = torch.randn(2, T, B, F, generator=generator)
    return {"reference": reference, "present": present, "learnable": learnable}


def check(function: Function, name: str, seed: int, p: float) -> None:
    given = features(seed)
    found = function(name, **given, p=p)
    assert found.shape == (B,) and found.dtype == torch.float32
    reference, present, learnable = (tensor.numpy() for tensor in given.values())
    wanted = truth.distance(name, reference, present, learnable, p)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", DISTANCES)
@pytest.mark.parametrize("p", [1.0, 2.0, 3.5])
def test_distances_are_those_of_the_definition(name: str, p: float) -> None:
    for seed in range(10):
        check(distance, name, seed, p)


def all_rows(name: str, **given: Any) -> Tensor:
    return distance(name, **given | {"learnable": torch.ones_like(given["learnable"])})


def the_other_way_round(name: str, *, reference: Tensor, present: Tensor, **given: Any) -> Tensor:
    return distance(name, present, reference, **given)


def summed(name: str, *, learnable: Tensor, **given: Any) -> Tensor:
    return distance(name, learnable=learnable, **given) * learnable.sum(0)


def similarity(name: str, **given: Any) -> Tensor:
    return 1 - distance(name, **given)


@pytest.mark.parametrize(
    ("mutation", "names"),
    [(all_rows, DISTANCES), (the_other_way_round, ("kl",)), (summed, DISTANCES), (similarity, ("cosine",))],
)
def test_the_check_notices(mutation: Function, names: tuple[str, ...]) -> None:
    for name in names:
        with pytest.raises(AssertionError):
            check(mutation, name, 0, 2.0)


@pytest.mark.parametrize("name", DISTANCES)
def test_strange_features_have_finite_distances(name: str) -> None:
    zeros, large = torch.zeros(T, B, F), torch.full((T, B, F), 1e9)
    learnable = torch.ones(T, B, dtype=torch.bool)
    for one, other in [(zeros, zeros), (zeros, large), (large, -large), (large, large * torch.tensor([1.0, 0, -1]))]:
        for where in (learnable, ~learnable):
            found = distance(name, one, other, where, 3.0)
            assert found.isfinite().all() and (found >= 0).all()
    given = features(3)
    assert (distance(name, **given | {"present": given["reference"]}, p=2.0) < 1e-6).all()


def test_the_p_norm_of_a_large_p_is_nearly_the_largest_difference() -> None:
    # Mutation: powers of the differences themselves: of 0.1 the distance was 0, of 3 infinite.
    learnable = torch.ones(T, B, dtype=torch.bool)
    for size in (1e-6, 0.1, 3.0, 2e9):
        present = size * torch.tensor([1.0, 0.5, -0.25]).expand(T, B, F)
        found = distance("p-norm", torch.zeros(T, B, F), present, learnable, 1000.0)
        torch.testing.assert_close(found, torch.full((B,), size))

"""Advantages of on-policy rows against their definition."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex.agents.ops import LAST
from rainbow_iqn_apex.agents.ops.n_step import n_step_targets
from rainbow_iqn_apex.agents.ops.vtrace import Targets, gae
from tests.agents.ops.sequences import MISTAKES, mistaken, random_sequences
from tests.ground_truth import gae as truth

GAMMA = 0.97
T, B = 12, 40
Function = Callable[..., Targets]


def sequences(seed: int) -> dict[str, Tensor]:
    return random_sequences(np.random.default_rng(seed), T, B)


def columns(given: dict[str, Tensor]) -> list[truth.Rows]:
    return [truth.Rows(*(given[name][:, b].numpy() for name in truth.Rows._fields)) for b in range(B)]


def check(function: Function, reference: Callable[..., Any], seed: int, **more: float) -> None:
    """Compare all columns with a reference that computes one at a time; both take `more`."""
    given = sequences(seed)
    found = function(**given, gamma=GAMMA, **more)
    advantage = np.stack([reference(rows, GAMMA, **more) for rows in columns(given)], 1)  # [T, B]
    np.testing.assert_allclose(found.advantage, advantage, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(found.value, given["value"][:-1].numpy() + advantage, rtol=1e-10, atol=1e-10)
    assert torch.equal(found.learnable, given["step_type"][:-1] != LAST)
    assert 0 < found.learnable.double().mean() < 1, "LAST rows were there"
    assert found.advantage[~found.learnable].count_nonzero() == 0


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("trace", [0.0, 0.5, 0.95, 1.0])
def test_gae_is_the_mixture_of_its_definition(seed: int, trace: float) -> None:
    check(gae, truth.gae, seed, trace=trace)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("n", [1, 2, 5, T, T + 3])
def test_n_step_advantages_are_those_of_the_definition(seed: int, n: int) -> None:
    check(n_step_targets, truth.n_step, seed, n=n)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_checks_notice(mistake: str) -> None:
    with pytest.raises(AssertionError):
        check(mistaken(gae, mistake), truth.gae, 0, trace=0.9)
    with pytest.raises(AssertionError):
        check(mistaken(n_step_targets, mistake), truth.n_step, 0, n=3)


@pytest.mark.parametrize("function", [gae, n_step_targets])
def test_targets_carry_no_gradient_and_shapes_must_fit(function: Function) -> None:
    given: dict[str, Any] = sequences(23)
    more: dict[str, Any] = {"gamma": GAMMA} | ({"trace": 0.9} if function is gae else {"n": 2})
    value = given["value"].requires_grad_()
    found = function(**given, **more)
    assert not found.value.requires_grad and not found.advantage.requires_grad
    with pytest.raises(ValueError, match="shapes do not fit"):
        function(**given | {"value": value[:-1]}, **more)

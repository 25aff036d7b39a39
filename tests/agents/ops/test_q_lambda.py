"""Q(lambda)'s targets against their definition as a mixture of k-step returns."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from rainbow_iqn_apex.agents.ops import LAST
from rainbow_iqn_apex.agents.ops.q_lambda import q_lambda
from tests.agents.ops.sequences import MISTAKES, mistaken, random_sequences
from tests.ground_truth import q_lambda as truth
from tests.ground_truth.gae import Rows

GAMMA = 0.97
T, B = 12, 40
Function = Callable[..., Tensor]


def sequences(seed: int) -> dict[str, Tensor]:
    given = random_sequences(np.random.default_rng(seed), T, B)
    return {"best": given.pop("value"), **given}


def check(function: Function, seed: int, trace: float) -> None:
    given = sequences(seed)
    columns = [Rows(*(part[:, b].numpy() for part in given.values())) for b in range(B)]
    wanted = np.stack([truth.q_lambda(rows, GAMMA, trace) for rows in columns], 1)  # [T, B]
    np.testing.assert_allclose(function(**given, gamma=GAMMA, trace=trace), wanted, rtol=1e-10, atol=1e-10)
    assert (given["step_type"][:-1] == LAST).any(), "LAST rows were there"


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("trace", [0.0, 0.65, 1.0])
def test_it_is_the_mixture_of_its_definition(seed: int, trace: float) -> None:
    check(q_lambda, seed, trace)


def shifted_bootstrap(**given: Any) -> Tensor:
    return q_lambda(**given | {"best": given["best"].roll(1, 0)})


def the_other_share(**given: Any) -> Tensor:
    return q_lambda(**given | {"trace": 1 - given["trace"]})


OWN = [shifted_bootstrap, the_other_share]


@pytest.mark.parametrize("mutant", [*OWN, *(mistaken(q_lambda, mistake) for mistake in MISTAKES)])
def test_the_check_notices(mutant: Function) -> None:
    with pytest.raises(AssertionError):
        check(mutant, 0, 0.65)


def test_targets_carry_no_gradient_and_shapes_must_fit() -> None:
    given: dict[str, Any] = sequences(23) | {"gamma": GAMMA, "trace": 0.9}
    best = given["best"].requires_grad_()
    assert not q_lambda(**given).requires_grad
    with pytest.raises(ValueError, match="shapes do not fit"):
        q_lambda(**given | {"best": best[:-1]})

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex.agents.rainbow.agent import cross_entropy, project
from rainbow_iqn_apex.memory.rows import Array
from tests.ground_truth import categorical as truth

A, B = 9, 10
Project = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def arguments(seed: int) -> tuple[Array, Array, Array, Array]:
    """Support, probabilities, returns and discounts, with clipping, true ends and exact hits of atoms among them."""
    rng = np.random.default_rng(seed)
    support = np.linspace(-4, 4, A)
    return_ = rng.normal(scale=2, size=B)
    discount = rng.uniform(0.5, 1, size=B)
    return_[:4], discount[:4] = [0, 1, -3, 2.5], 1  # whole atoms, and half of one
    return_[4:7], discount[4:7] = [2, 0.3, 100], 0
    return support, rng.dirichlet(np.ones(A), size=B), return_, discount


def check(function: Project, dtype: torch.dtype = torch.float64) -> None:
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    for seed in range(5):
        inputs = arguments(seed)
        found = function(*(torch.from_numpy(array).to(dtype) for array in inputs))
        assert found.dtype == dtype
        np.testing.assert_allclose(found, truth.project(*inputs), rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(found.sum(1), np.ones(B), rtol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_agrees_with_the_paper(dtype: torch.dtype) -> None:
    check(project, dtype)


def as_printed(support: Tensor, probabilities: Tensor, return_: Tensor, discount: Tensor) -> Tensor:
    """Lose mass."""
    arrays = (support.numpy(), probabilities.numpy(), return_.numpy(), discount.numpy())
    return torch.from_numpy(truth.project(*arrays, as_printed=True))


def exchanged(support: Tensor, probabilities: Tensor, return_: Tensor, discount: Tensor) -> Tensor:
    """Exchange atoms with where they land."""
    return project(support, probabilities.flip(1), return_, discount)


@pytest.mark.parametrize("mutant", [as_printed, exchanged])
def test_the_check_notices(mutant: Project) -> None:
    with pytest.raises(AssertionError):
        check(mutant)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mass_is_conserved_on_rainbows_support(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(1)
    probabilities = torch.from_numpy(rng.dirichlet(np.ones(51), size=2000)).to(dtype)
    return_ = torch.from_numpy(rng.integers(-12, 13, 2000) * 0.2).to(dtype)  # on atoms, as far as floats can say
    discount = torch.from_numpy(rng.choice([0, 1, 0.99**3], 2000)).to(dtype)
    found = project(torch.linspace(-10, 10, 51, dtype=dtype), probabilities, return_, discount)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(1), probabilities.sum(1), rtol=1e-12 if dtype == torch.float64 else 1e-6)


def test_cross_entropy() -> None:
    rng = np.random.default_rng(3)
    target = rng.dirichlet(np.ones(A), size=B)
    logits = torch.from_numpy(rng.normal(size=(B, A))).requires_grad_()
    probabilities = torch.from_numpy(target).requires_grad_()
    found = cross_entropy(probabilities, logits.log_softmax(1))
    log_p = logits.detach().numpy() - np.log(np.exp(logits.detach().numpy()).sum(1, keepdims=True))
    np.testing.assert_allclose(found.detach(), [-sum(m * lp) for m, lp in zip(target, log_p, strict=True)], atol=1e-12)
    found.sum().backward()  # type: ignore[no-untyped-call]
    assert probabilities.grad is None and logits.grad is not None
    np.testing.assert_allclose(logits.grad, np.exp(log_p) - target, atol=1e-12)


def test_no_gradient_flows_through_the_projection() -> None:
    inputs = [torch.from_numpy(array) for array in arguments(0)]
    inputs[1].requires_grad_()
    assert not project(*inputs).requires_grad

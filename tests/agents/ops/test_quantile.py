from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex.agents.rainbow_iqn.agent import quantile_huber_loss
from rainbow_iqn_apex.memory.rows import Array
from tests.ground_truth import quantile as truth

N, M, B = 5, 7, 10
Loss = Callable[[Tensor, Tensor, Tensor, float], Tensor]


def arguments(seed: int) -> tuple[Array, Array, Array]:
    """Quantiles, taus and targets; some differences are exactly 0."""
    rng = np.random.default_rng(seed)
    quantiles, targets = 2 * rng.normal(size=(N, B)), 2 * rng.normal(size=(M, B))
    targets[2, :4] = quantiles[3, :4]
    return quantiles, rng.uniform(size=(N, B)), targets


def check(loss: Loss, dtype: torch.dtype = torch.float64) -> None:
    for seed, kappa in enumerate([0.3, 1.0, 2.5]):
        inputs = arguments(seed)
        quantiles, taus, targets = (torch.from_numpy(array).to(dtype) for array in inputs)
        found = loss(quantiles, taus, targets, kappa)
        assert found.dtype == dtype
        tolerance = 1e-10 if dtype == torch.float64 else 1e-5
        np.testing.assert_allclose(found, truth.quantile_huber_loss(*inputs, kappa), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_agrees_with_the_paper(dtype: torch.dtype) -> None:
    check(quantile_huber_loss, dtype)


def pairwise(quantiles: Tensor, taus: Tensor, targets: Tensor, kappa: float) -> Tensor:
    """All terms, [N, M, B], for variants that differ in how they add them up."""
    rows = [quantile_huber_loss(q[None], t[None], targets[j : j + 1], kappa)
            for q, t in zip(quantiles, taus, strict=True) for j in range(len(targets))]  # fmt: skip
    return torch.stack(rows).reshape(len(quantiles), len(targets), -1)


MUTANTS: dict[str, Loss] = {
    "mean over N, sum over M": lambda q, t, y, kappa: pairwise(q, t, y, kappa).mean(0).sum(0),
    "mean over both": lambda q, t, y, kappa: pairwise(q, t, y, kappa).mean((0, 1)),
    "online and target exchanged": lambda q, _, y, kappa: quantile_huber_loss(y, torch.full_like(y, 0.5), q, kappa),
    "sign of the difference": lambda q, t, y, kappa: quantile_huber_loss(-q, t, -y, kappa),
    "not divided by kappa": lambda q, t, y, kappa: quantile_huber_loss(q, t, y, kappa) * kappa,
}


@pytest.mark.parametrize("name", MUTANTS)
def test_check_sees(name: str) -> None:
    with pytest.raises(AssertionError):
        check(MUTANTS[name])


def test_no_gradient_flows_through_targets_or_taus() -> None:
    online, taus, targets = (torch.from_numpy(array).requires_grad_() for array in arguments(4))
    quantile_huber_loss(online, taus, targets, 1.0).sum().backward()  # type: ignore[no-untyped-call]
    assert online.grad is not None
    assert taus.grad is None
    assert targets.grad is None


@pytest.mark.parametrize("kappa", [0.0, -1.0, float("nan")])
def test_kappa_is_positive(kappa: float) -> None:
    with pytest.raises(ValueError, match="kappa"):
        quantile_huber_loss(torch.zeros(N, B), torch.zeros(N, B), torch.zeros(M, B), kappa)

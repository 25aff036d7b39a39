"""h and its inverse, against the formulas as the paper has them."""

from typing import Any

import numpy as np
import pytest
import torch

from rainbow_iqn_apex.agents.r2d2.agent import rescale, unscale

X = np.concatenate([-np.logspace(-6, 6, 200)[::-1], [0.0], np.logspace(-6, 6, 200)])


def h(x: Any) -> Any:
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + 0.001 * x


def h_inverse(y: Any) -> Any:
    root = (np.sqrt(1 + 4 * 0.001 * (np.abs(y) + 1 + 0.001)) - 1) / (2 * 0.001)
    return np.sign(y) * (root**2 - 1)


def test_h_is_the_formula_of_the_paper() -> None:
    np.testing.assert_allclose(rescale(torch.from_numpy(X)), h(X), rtol=1e-9, atol=1e-12)


def test_the_inverse_is_the_closed_form_of_the_paper() -> None:
    y = np.linspace(-300, 300, 999)
    np.testing.assert_allclose(unscale(torch.from_numpy(y)), h_inverse(y), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_the_inverse_undoes_h_also_for_small_and_large_values(dtype: torch.dtype, tolerance: float) -> None:
    # Mutation: the closed form as it stands loses all digits around 0 in float32.
    x = torch.from_numpy(X).to(dtype)
    np.testing.assert_allclose(unscale(rescale(x)), x, rtol=tolerance)

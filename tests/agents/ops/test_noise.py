import math

import numpy as np
import pytest
import torch

from rainbow_iqn_apex.agents.ops.noise import factorised_noise


def test_is_the_signed_root_of_normal_draws() -> None:
    found = factorised_noise(1000, torch.Generator().manual_seed(7), "cpu")
    x = torch.randn(1000, generator=torch.Generator().manual_seed(7)).double().numpy()
    np.testing.assert_allclose(found, np.sign(x) * np.sqrt(np.abs(x)), rtol=1e-6)
    assert found.dtype == torch.float32


def test_has_the_moments_of_the_paper_s_f() -> None:
    found = factorised_noise(400_000, torch.Generator().manual_seed(8), torch.device("cpu")).double()
    assert found.mean().item() == pytest.approx(0, abs=0.01)
    assert found.square().mean().item() == pytest.approx(math.sqrt(2 / math.pi), abs=0.01)  # E|x|
    assert found.pow(4).mean().item() == pytest.approx(1, abs=0.02)  # E x²


def test_every_draw_is_new_and_repeatable() -> None:
    generator = torch.Generator().manual_seed(9)
    first, second = factorised_noise(5, generator, "cpu"), factorised_noise(5, generator, "cpu")
    assert not torch.equal(first, second)
    assert torch.equal(first, factorised_noise(5, generator.manual_seed(9), "cpu"))


def test_without_a_generator_uses_the_global_one() -> None:
    torch.manual_seed(10)
    first = factorised_noise(5, None, "cpu")
    torch.manual_seed(10)
    assert torch.equal(first, factorised_noise(5, None, "cpu"))

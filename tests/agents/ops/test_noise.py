import numpy as np
import torch

from rainbow_iqn_apex.agents.networks.duelling import factorised_noise


def test_is_the_signed_root_of_normal_draws() -> None:
    found = factorised_noise(1000, torch.Generator().manual_seed(7), "cpu")
    x = torch.randn(1000, generator=torch.Generator().manual_seed(7)).double().numpy()
    np.testing.assert_allclose(found, np.sign(x) * np.sqrt(np.abs(x)), rtol=1e-6)
    assert found.dtype == torch.float32

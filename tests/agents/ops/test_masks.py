import numpy as np
import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex.agents.ops.masks import better_half, masked_mean, normalised

T, B = 7, 5


def rows(seed: int) -> tuple[Tensor, Tensor]:
    """Draw advantages [T, B], which are NaN where they are not kept."""
    rng = np.random.default_rng(seed)
    kept = torch.from_numpy(rng.random((T, B)) < 0.8)
    return torch.where(kept, torch.from_numpy(rng.normal(2, 3, (T, B))), torch.nan), kept


@pytest.mark.parametrize("seed", range(5))
def test_a_mean_is_that_of_the_rows_kept(seed: int) -> None:
    values, kept = rows(seed)
    torch.testing.assert_close(masked_mean(values, kept), values[kept].mean())
    assert masked_mean(values, torch.zeros_like(kept)) == 0


@pytest.mark.parametrize("seed", range(5))
def test_normalised_rows_have_mean_0_and_deviation_1(seed: int) -> None:
    advantage, kept = rows(seed)
    found = normalised(advantage, kept)
    wanted = (advantage[kept] - advantage[kept].mean()) / advantage[kept].std(correction=0)
    torch.testing.assert_close(found[kept], wanted)
    assert found[~kept].count_nonzero() == 0
    # Mutation: rows that are not learned from count as advantages of 0
    assert not torch.allclose(normalised(advantage.nan_to_num(0), torch.ones_like(kept))[kept], wanted)


def test_equal_advantages_become_0() -> None:
    kept = torch.ones(T, B, dtype=torch.bool)
    assert normalised(torch.full((T, B), 3.0), kept).count_nonzero() == 0
    assert normalised(torch.full((T, B), 3.0), ~kept).count_nonzero() == 0


@pytest.mark.parametrize("seed", range(10))
def test_the_better_half_is_that_of_a_sort(seed: int) -> None:
    advantage, kept = rows(seed)
    found = better_half(advantage, kept)
    ordered = sorted(advantage[kept].tolist(), reverse=True)
    assert sorted(advantage[found].tolist(), reverse=True) == ordered[: (len(ordered) + 1) // 2]
    assert not (found & ~kept).any()


def test_half_of_equal_advantages_is_half_of_the_rows() -> None:
    kept = torch.ones(T, B, dtype=torch.bool)
    assert better_half(torch.zeros(T, B), kept).sum() == (T * B + 1) // 2
    assert better_half(torch.zeros(T, B), ~kept).sum() == 0
    # Mutation: "above the median" would keep none of them

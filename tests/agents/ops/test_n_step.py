from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex.agents.ops import FIRST, LAST, MID
from rainbow_iqn_apex.agents.ops.n_step import NStep, n_step
from tests.ground_truth import n_step as truth
from tests.ground_truth.episodes import random_stream

GAMMA = 0.97
Function = Callable[[Tensor, Tensor, Tensor, float], NStep]


def check(function: Function, n: int, dtype: torch.dtype = torch.float64, windows: int = 1000) -> None:
    """Compare windows cut anywhere, but not at LAST, out of random streams with their whole episodes."""
    rng = np.random.default_rng(n)
    reward, discount = np.empty((2, n + 1, windows))
    step_type = np.empty((n + 1, windows), np.uint8)
    expected = []
    for b in range(windows):
        start = int(rng.integers(0, 30))
        stream = random_stream(rng, start + n + 2)
        start += stream.step_type[start] == LAST
        window = slice(start, start + n + 1)
        reward[:, b], discount[:, b], step_type[:, b] = (
            stream.reward[window],
            stream.discount[window],
            stream.step_type[window],
        )
        episode, step = stream.places[start]
        expected.append(truth.n_step(episode, step, n, GAMMA))
    reward[0] = discount[0] = np.nan  # arrived before the action: not read
    found = function(
        torch.from_numpy(reward).to(dtype), torch.from_numpy(discount).to(dtype), torch.from_numpy(step_type), GAMMA
    )
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    assert found.return_.dtype == found.discount.dtype == dtype
    assert found.steps.dtype == torch.int64
    returns, discounts, steps = zip(*expected, strict=True)
    np.testing.assert_array_equal(found.steps, steps)
    np.testing.assert_allclose(found.return_, returns, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found.discount, discounts, rtol=tolerance, atol=tolerance)
    if 1 < n < 9:  # both kinds of window were there
        assert 0 < np.mean(np.array(steps) < n) < 1
        assert 0 < np.mean(np.array(discounts) == 0) < 1


@pytest.mark.parametrize("n", [1, 2, 3, 5, 12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_windows_agree_with_their_whole_episodes(n: int, dtype: torch.dtype) -> None:
    check(n_step, n, dtype)


def one_row_too_far(reward: Tensor, discount: Tensor, step_type: Tensor, gamma: float) -> NStep:
    early = torch.where(step_type.roll(-1, 0) == LAST, LAST, MID)
    return n_step(reward, discount, torch.cat((step_type[:1], early[1:])), gamma)


def into_the_next_episode(reward: Tensor, discount: Tensor, step_type: Tensor, gamma: float) -> NStep:
    return n_step(reward, discount, torch.full_like(step_type, MID), gamma)


def rewards_of_the_wrong_rows(reward: Tensor, discount: Tensor, step_type: Tensor, gamma: float) -> NStep:
    return n_step(reward.roll(1, 0), discount, step_type, gamma)


@pytest.mark.parametrize("mutant", [one_row_too_far, into_the_next_episode, rewards_of_the_wrong_rows])
def test_the_check_notices(mutant: Function) -> None:
    with pytest.raises(AssertionError):
        check(mutant, 3)


def test_a_window_that_starts_at_last_reads_nothing() -> None:
    step_type = torch.tensor([[LAST], [FIRST], [MID], [LAST]], dtype=torch.uint8)
    found = n_step(torch.full((4, 1), torch.nan), torch.full((4, 1), torch.nan), step_type, 0.5)
    assert (found.return_.item(), found.discount.item(), found.steps.item()) == (0, 1, 0)

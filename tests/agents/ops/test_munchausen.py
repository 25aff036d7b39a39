"""The Munchausen terms against a slow transcription, and at their limits."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex.agents.rainbow_iqn.agent import munchausen_bonus, scaled_log_policy, soft_quantiles
from tests.ground_truth import munchausen as truth

N, B, A = 5, 9, 4
Bonus = Callable[[Tensor, Tensor, float, float, float], Tensor]
Soft = Callable[[Tensor, float], Tensor]


def quantiles_of(seed: int) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(N, B, A)))


def check_bonus(bonus: Bonus) -> None:
    action = torch.arange(B) % A
    for seed, (alpha, temperature, lowest) in enumerate([(0.9, 0.03, -1.0), (0.5, 0.7, -0.6), (1.0, 2.0, -9.0)]):
        values = quantiles_of(seed).mean(0)
        expected = truth.bonus(values.numpy(), action.numpy(), alpha, temperature, lowest)
        np.testing.assert_allclose(bonus(values, action, alpha, temperature, lowest), expected, rtol=1e-9, atol=1e-12)


def check_soft(soft: Soft) -> None:
    for seed, temperature in enumerate([0.03, 0.7, 2.0]):
        quantiles = quantiles_of(seed)
        expected = truth.soft_quantiles(quantiles.numpy(), temperature)
        np.testing.assert_allclose(soft(quantiles, temperature), expected, rtol=1e-9, atol=1e-12)


def test_both_agree_with_the_paper() -> None:
    check_bonus(munchausen_bonus)
    check_soft(soft_quantiles)


BONUSES: dict[str, Bonus] = {
    "not clipped": lambda q, a, alpha, tau, _: munchausen_bonus(q, a, alpha, tau, -1e9),
    "clipped after alpha": lambda q, a, alpha, tau, low: munchausen_bonus(q, a, alpha, tau, -1e9).clamp(low, 0),
    "not scaled by the temperature": lambda q, a, alpha, tau, low: munchausen_bonus(q / tau, a, alpha, 1.0, low),
    "of the best action": lambda q, _, alpha, tau, low: munchausen_bonus(q, q.argmax(1), alpha, tau, low),
}
SOFTS: dict[str, Soft] = {
    "without entropy": lambda z, tau: ((scaled_log_policy(z.mean(0), tau) / tau).exp() * z).sum(2),
    "entropy of the wrong sign": lambda z, tau: 2 * SOFTS["without entropy"](z, tau) - soft_quantiles(z, tau),
    "a policy for each quantile": lambda z, tau: torch.cat([soft_quantiles(row[None], tau) for row in z]),
    "the best action": lambda z, _: z.gather(2, z.mean(0).argmax(1)[None, :, None].expand(N, B, 1)).squeeze(2),
}


@pytest.mark.parametrize("name", BONUSES)
def test_the_check_of_the_bonus_sees(name: str) -> None:
    with pytest.raises(AssertionError):
        check_bonus(BONUSES[name])


@pytest.mark.parametrize("name", SOFTS)
def test_the_check_of_the_expectation_sees(name: str) -> None:
    with pytest.raises(AssertionError):
        check_soft(SOFTS[name])


def test_without_temperature_there_is_the_best_action_alone() -> None:
    quantiles, action = quantiles_of(4), torch.arange(B) % A
    torch.testing.assert_close(soft_quantiles(quantiles, 1e-6), SOFTS["the best action"](quantiles, 0.0))
    assert not munchausen_bonus(quantiles.mean(0), action, 0.0, 0.03, -1).any()
    best = quantiles.mean(0).argmax(1)
    assert not munchausen_bonus(quantiles.mean(0), best, 0.9, 1e-6, -1).any(), "the best action costs nothing"


def test_actions_that_are_never_chosen_give_finite_numbers() -> None:
    quantiles = torch.tensor([[[0.0, 1e4, -1e4]]])  # in float32, e^(-1e4 / 0.03) is 0
    assert soft_quantiles(quantiles, 0.03).item() == 1e4
    bonus = munchausen_bonus(quantiles[0], torch.tensor([2]), 0.9, 0.03, -1)
    assert bonus.item() == pytest.approx(-0.9)

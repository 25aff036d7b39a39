"""Losses of policies and values against row-by-row transcriptions; rows that are not kept hold NaN and infinity."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex.agents.ops.losses import (
    ValueClip,
    awr_loss,
    beyond_bounds,
    clipped_surrogate,
    impact_log_ratio,
    ppo_loss,
    value_loss,
    vmpo_losses,
    vpg_loss,
)
from rainbow_iqn_apex.agents.ops.masks import better_half, masked_mean
from tests.ground_truth import policy_losses as truth

T, B = 7, 5
Gradients = tuple[Tensor | None, ...]
of_seeds = pytest.mark.parametrize("seed", range(5))


def impact_loss(log_pi: Tensor, log_target: Tensor, log_mu: Tensor, advantage: Tensor, kept: Tensor) -> Tensor:
    """IMPACT's loss as the agent puts it together."""
    return -masked_mean(clipped_surrogate(impact_log_ratio(log_pi, log_target, log_mu, 2), advantage, kept, 0.2), kept)


class Drawn(NamedTuple):
    log_pi: Tensor  # [T, B] also log ratios
    advantage: Tensor  # [T, B]
    kept: Tensor  # [T, B]

    def lists(self) -> tuple[list[float], list[float]]:
        return self.log_pi[self.kept].tolist(), self.advantage[self.kept].tolist()


def drawn(seed: int, spread: float = 1.0) -> Drawn:
    rng = np.random.default_rng(seed)
    kept = torch.from_numpy(rng.random((T, B)) < 0.8)
    log_pi = torch.where(kept, torch.from_numpy(rng.normal(0, spread, (T, B))), torch.inf)
    advantage = torch.where(kept, torch.from_numpy(rng.normal(0, 2, (T, B))), torch.nan)
    return Drawn(log_pi.requires_grad_(), advantage, kept)


def gradient(loss: Tensor, given: Drawn) -> Tensor:
    """Return the gradient [T, B] of a loss, which must be finite, and 0 where nothing is kept."""
    (found,) = torch.autograd.grad(loss, given.log_pi)
    assert found.isfinite().all() and found[~given.kept].count_nonzero() == 0
    return found


@of_seeds
def test_the_policy_gradient_is_the_advantage(seed: int) -> None:
    given = drawn(seed)
    log_pi, advantage = given.lists()
    loss = vpg_loss(given.log_pi, given.advantage, given.kept)
    assert loss.item() == pytest.approx(-np.mean(np.array(log_pi) * advantage))
    wanted = torch.where(given.kept, -given.advantage / given.kept.sum(), 0)
    torch.testing.assert_close(gradient(loss, given), wanted)


@pytest.mark.parametrize("log_symmetric", [False, True])
def test_a_ratio_is_beyond_the_bounds_where_its_loss_has_no_gradient(log_symmetric: bool) -> None:
    # Mutation: bounds of 1 - epsilon for both forms.
    ratios = torch.tensor([[0.79, 0.81, 0.83, 0.84, 1.0, 1.19, 1.21]], dtype=torch.float64)
    kept = torch.ones_like(ratios, dtype=torch.bool)
    found = beyond_bounds(ratios.log(), 0.2, log_symmetric)
    for sign in (-1.0, 1.0):
        log_ratio = ratios.log().requires_grad_()
        (gradient_,) = torch.autograd.grad(
            ppo_loss(log_ratio, torch.full_like(ratios, sign), kept, 0.2, log_symmetric), log_ratio
        )
        outward = ratios > 1 if sign > 0 else ratios < 1
        assert torch.equal(gradient_ == 0, found & outward)


def check_ppo(loss: Callable[..., Tensor], seed: int, log_symmetric: bool) -> None:
    given = drawn(seed, 0.3)
    log_ratio, advantage = given.lists()
    low = 1 / 1.2 if log_symmetric else 0.8
    wanted = truth.ppo([float(x) for x in np.exp(log_ratio)], advantage, low, 1.2)
    found = loss(given.log_pi, given.advantage, given.kept, 0.2, log_symmetric)
    assert found.item() == pytest.approx(wanted, rel=1e-12)
    ratio, A = given.log_pi.detach().exp(), given.advantage
    clipped = torch.where(A > 0, ratio > 1.2, ratio < low)
    wanted_gradient = torch.where(given.kept & ~clipped, -ratio * A / given.kept.sum(), 0)
    torch.testing.assert_close(gradient(found, given), wanted_gradient)


@of_seeds
@pytest.mark.parametrize("log_symmetric", [False, True])
def test_the_clipped_surrogate_is_the_minimum_of_equation_7(seed: int, log_symmetric: bool) -> None:
    check_ppo(ppo_loss, seed, log_symmetric)


def test_the_check_notices_a_ratio_that_is_clipped_on_both_sides() -> None:
    def mutant(log_ratio: Tensor, advantage: Tensor, kept: Tensor, clip: float, log_symmetric: bool) -> Tensor:
        return ppo_loss(log_ratio.clamp(np.log(1 - clip), np.log1p(clip)), advantage, kept, clip, log_symmetric)

    with pytest.raises(AssertionError):
        check_ppo(mutant, 0, log_symmetric=False)


def test_a_ratio_beyond_all_numbers_that_is_clipped_has_the_gradient_0() -> None:
    log_ratio = torch.tensor([[1e4, -1e4]], requires_grad=True)
    loss = ppo_loss(log_ratio, torch.tensor([[1.0, -1.0]]), torch.ones(1, 2, dtype=torch.bool), 0.2)
    assert loss.item() == pytest.approx(-(1.2 - 0.8) / 2)
    loss.backward()  # type: ignore[no-untyped-call]
    assert log_ratio.grad is not None and log_ratio.grad.tolist() == [[0, 0]]


def test_impact_has_gradient_into_the_policy_that_learns_alone() -> None:
    """Its numbers are compared with IMPALA's other terms, in tests/agents/test_impala_mixture.py."""
    given = drawn(1, 0.3)
    policies = [(given.log_pi.detach() + shift).requires_grad_() for shift in (0.4, -0.5)]
    advantage = given.advantage.clone().requires_grad_()
    loss = impact_loss(given.log_pi, policies[0], policies[1], advantage, given.kept)
    found: Gradients = torch.autograd.grad(loss, [*policies, advantage], allow_unused=True, retain_graph=True)
    assert found == (None,) * 3
    assert gradient(loss, given).count_nonzero() > 0


def test_factors_beyond_all_numbers_leave_impact_finite() -> None:
    log_pi = torch.zeros(1, 2, requires_grad=True)
    far = torch.tensor([[-1e4, 1e4]])  # μ / π_target and π / μ: one is infinite and the other 0, or the reverse
    kept, advantage = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[1.0, -1.0]])
    for log_target, log_mu in ((far, -far), (far, far), (torch.tensor([[-torch.inf, 1e4]]), far)):
        loss = impact_loss(log_pi, log_target, log_mu, advantage, kept)
        assert loss.isfinite() and torch.autograd.grad(loss, log_pi)[0].isfinite().all()


@of_seeds
def test_regression_is_weighted_by_advantages_up_to_the_largest(seed: int) -> None:
    given = drawn(seed)
    found = awr_loss(given.log_pi, given.advantage, given.kept, 0.5, 20)
    assert found.item() == pytest.approx(truth.awr(*given.lists(), 0.5, 20), rel=1e-12)
    assert found.item() != pytest.approx(truth.awr(*given.lists(), 0.5, 1e9))  # some were cut
    gradient(found, given)


def test_a_weight_beyond_all_numbers_is_the_largest() -> None:
    kept = torch.ones(1, 1, dtype=torch.bool)
    assert awr_loss(torch.tensor([[-2.0]]), torch.tensor([[1e6]]), kept, 0.05, 20).item() == pytest.approx(40)


@of_seeds
def test_vmpo_is_that_of_the_better_half(seed: int) -> None:
    given = drawn(seed)
    half = better_half(given.advantage, given.kept)
    eta = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    found = vmpo_losses(given.log_pi, given.advantage, half, eta, 0.1)
    policy, temperature = truth.vmpo(*given.lists(), 0.7, 0.1)
    assert found.policy.item() == pytest.approx(policy, rel=1e-12)
    assert found.temperature.item() == pytest.approx(temperature, rel=1e-12)
    # Mutation: all rows and not the better half
    assert vmpo_losses(given.log_pi, given.advantage, given.kept, eta, 0.1).policy.item() != pytest.approx(policy)
    gradient(found.policy, given)
    above, below = (truth.vmpo(*given.lists(), 0.7 + d, 0.1)[1] for d in (1e-6, -1e-6))
    (of_eta,) = torch.autograd.grad(found.temperature, eta)
    assert of_eta.item() == pytest.approx((above - below) / 2e-6, rel=1e-5)


def test_each_loss_of_vmpo_has_gradient_into_its_own_alone() -> None:
    given = drawn(2)
    eta = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    found = vmpo_losses(given.log_pi, given.advantage, given.kept, eta, 0.1)
    of_eta: Gradients = torch.autograd.grad(found.policy, eta, allow_unused=True)
    of_policy: Gradients = torch.autograd.grad(found.temperature, given.log_pi, allow_unused=True)
    assert of_eta == of_policy == (None,)


def test_nothing_kept_is_nothing_learned() -> None:
    log_pi, eta = torch.zeros(T, B, requires_grad=True), torch.tensor(0.7, requires_grad=True)
    bad, kept = torch.full((T, B), torch.nan), torch.zeros(T, B, dtype=torch.bool)
    losses = [
        vpg_loss(log_pi, bad, kept), ppo_loss(log_pi, bad, kept, 0.2), awr_loss(log_pi, bad, kept, 1, 20),
        impact_loss(log_pi, bad, bad, bad, kept),
        *vmpo_losses(log_pi, bad, kept, eta, 0.1), value_loss(log_pi, bad, kept),
    ]  # fmt: skip
    assert [loss.item() for loss in losses] == [0] * len(losses)
    torch.stack(losses).sum().backward()  # type: ignore[no-untyped-call]
    assert log_pi.grad is not None and log_pi.grad.count_nonzero() == 0
    assert eta.grad is not None and eta.grad == 0


@of_seeds
@pytest.mark.parametrize("huber", [None, 0.8])
@pytest.mark.parametrize("pessimistic", [False, True])
def test_value_losses_are_those_of_each_row(seed: int, huber: float | None, pessimistic: bool) -> None:
    given = drawn(seed)
    rng = np.random.default_rng(seed + 100)
    recorded = torch.where(given.kept, torch.from_numpy(rng.normal(size=(T, B))), torch.nan)
    clip = ValueClip(recorded, 0.3) if pessimistic else None
    found = value_loss(given.log_pi, given.advantage, given.kept, huber, clip)
    near = recorded[given.kept].tolist() if pessimistic else None
    assert found.item() == pytest.approx(truth.value(*given.lists(), near, 0.3, huber), rel=1e-12)
    gradient(found, given)

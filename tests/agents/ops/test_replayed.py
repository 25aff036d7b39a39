"""Losses and trust of replayed rows against row-by-row transcriptions; rows that are not kept hold NaN and infinity."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex.agents.ops import LAST
from rainbow_iqn_apex.agents.ops.divergence import kl_divergence
from rainbow_iqn_apex.agents.ops.masks import masked_mean
from rainbow_iqn_apex.agents.ops.replayed import policy_cloning, trusted_rows, value_cloning
from rainbow_iqn_apex.memory.chunk import MOST
from rainbow_iqn_apex.memory.rows import Array
from tests.agents.ops.sequences import random_sequences
from tests.ground_truth import replayed as truth

T, B, A = 7, 3, 5
of_seeds = pytest.mark.parametrize("seed", range(5))
Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


class Drawn(NamedTuple):
    """Rows of random streams, of which FIRST and MID ones are kept, if they are replayed."""

    log_pi: Tensor  # [T, B, A]
    log_mu: Tensor  # [T, B, A]
    value: Tensor  # [T, B]
    recorded: Tensor  # [T, B]
    kept: Tensor  # [T, B]

    def probabilities(self) -> tuple[Array, Array]:
        return self.log_pi.detach().exp().numpy(), self.log_mu.detach().exp().numpy()


def drawn(seed: int) -> Drawn:
    """Draw policies whose divergences are different both ways; parts need gradient, so that a leak is seen."""
    rng = np.random.default_rng(seed)
    rows = random_sequences(rng, T, B)
    kept = (rows["step_type"][:-1] != LAST) & torch.from_numpy(rng.random((T, B)) < 0.8)
    policies = torch.from_numpy(rng.normal(0, 1, (2, T, B, A))).log_softmax(3)  # [2, T, B, A]
    log_pi, log_mu = torch.where(kept.unsqueeze(2), policies, torch.inf).unbind()  # inf - inf is NaN
    value = torch.where(kept, rows["value"][:-1], torch.inf)
    recorded = torch.where(kept, torch.from_numpy(rng.normal(size=(T, B))), torch.nan)
    assert 1 < kept.sum() < kept.numel()
    for part in (log_pi, log_mu, value, recorded):
        part.requires_grad_()
    return Drawn(log_pi, log_mu, value, recorded, kept)


def gradient(loss: Tensor, into: Tensor, constant: Tensor, kept: Tensor) -> Tensor:
    """Return the gradient [...], which must be finite, 0 where nothing is kept, and go into nothing else."""
    found, none = torch.autograd.grad(loss, (into, constant), allow_unused=True)
    assert none is None and found.isfinite().all() and found[~kept].count_nonzero() == 0
    return found


def check_policy(loss: Loss, seed: int) -> None:
    given = drawn(seed)
    found = loss(given.log_pi, given.log_mu, given.kept)
    wanted = truth.policy_cloning(*given.probabilities(), given.kept.numpy())
    np.testing.assert_allclose(found.detach(), wanted, rtol=1e-6, atol=1e-6)
    # d/d log π of Σ μ (log μ - log π) is -μ, as long as log π is taken for free
    slope = gradient(found.sum(), given.log_pi, given.log_mu, given.kept)
    wanted_slope = torch.where(given.kept.unsqueeze(2), -given.log_mu.detach().exp(), 0)
    torch.testing.assert_close(slope, wanted_slope, rtol=1e-6, atol=1e-6)


@of_seeds
def test_policy_cloning_is_the_divergence_from_the_policy_that_acted(seed: int) -> None:
    check_policy(policy_cloning, seed)


def test_the_check_notices_a_divergence_the_wrong_way_round() -> None:
    with pytest.raises(AssertionError):
        check_policy(lambda log_pi, log_mu, kept: policy_cloning(log_mu, log_pi, kept), 0)


def check_value(mean: Loss, seed: int) -> None:
    given = drawn(seed)
    found = mean(given.value, given.recorded, given.kept)
    wanted = truth.value_cloning(given.value.detach().numpy(), given.recorded.detach().numpy(), given.kept.numpy())
    assert found.item() == pytest.approx(wanted.sum() / given.kept.sum().item(), rel=1e-6)
    slope = gradient(found, given.value, given.recorded, given.kept)
    error = torch.where(given.kept, given.value - given.recorded, 0).detach()
    torch.testing.assert_close(slope, 2 * error / given.kept.sum(), rtol=1e-6, atol=1e-6)


@of_seeds
def test_value_cloning_is_the_square_of_each_row(seed: int) -> None:
    check_value(lambda *given: masked_mean(value_cloning(*given), given[2]), seed)
    given = drawn(seed)
    found = value_cloning(given.value, given.recorded, given.kept)
    assert found.shape == (T, B) and found[~given.kept].count_nonzero() == 0


def test_the_check_notices_a_norm_over_the_batch() -> None:
    def norm(value: Tensor, recorded: Tensor, kept: Tensor) -> Tensor:
        return value_cloning(value, recorded, kept).sum().sqrt()

    def norm_of_each_row(value: Tensor, recorded: Tensor, kept: Tensor) -> Tensor:
        return masked_mean(torch.where(kept, value - recorded.detach(), 0).abs(), kept)

    for mutant in (norm, lambda *given: norm(*given) / given[2].sum(), norm_of_each_row):
        with pytest.raises(AssertionError):
            check_value(mutant, 0)


def test_the_threshold_itself_is_not_trusted_nor_is_what_is_not_a_number() -> None:
    log_pi, log_mu = torch.randn(2, T, B, A).log_softmax(3)
    divergence = kl_divergence(log_pi, log_mu)  # [T, B]
    threshold = divergence[2, 1].item()
    assert torch.equal(trusted_rows(log_pi, log_mu, threshold), divergence < threshold)
    assert not trusted_rows(log_pi, log_mu, threshold)[2, 1]
    assert not trusted_rows(torch.full((T, B, A), torch.nan), log_mu, torch.inf).any()


def test_nothing_kept_is_nothing_learned() -> None:
    none = torch.zeros(T, B, dtype=torch.bool)
    log_pi, value = torch.full((T, B, A), torch.inf, requires_grad=True), torch.full((T, B), torch.nan)
    loss = policy_cloning(log_pi, log_pi, none).sum() + value_cloning(value, value, none).sum()
    assert loss == 0 and torch.autograd.grad(loss, log_pi)[0].count_nonzero() == 0


def test_shapes_must_fit() -> None:
    given = drawn(0)
    calls: tuple[Callable[[], Tensor], ...] = (
        lambda: policy_cloning(given.log_pi, given.log_mu[:, :, :1], given.kept),
        lambda: policy_cloning(given.log_pi, given.log_mu, given.kept[:1]),
        lambda: value_cloning(given.value, given.recorded[:, :1], given.kept),
        lambda: value_cloning(given.value, given.recorded, given.kept[:, :1]),
        lambda: trusted_rows(given.log_pi, given.log_mu[:1], 0.3),
        lambda: kl_divergence(given.log_pi, given.log_mu[:, :1]),
    )
    for found in calls:
        with pytest.raises(ValueError, match="shapes do not fit"):
            found()


def test_cloning_stays_finite_for_whatever_a_chunk_may_hold() -> None:
    # Mutation: recorded logarithms as they are; exp(1e9) is infinite, and one message would end the run.
    log_pi = torch.zeros(T, B, A).log_softmax(2).requires_grad_()
    kept = torch.ones(T, B, dtype=torch.bool)
    for recorded in (MOST, 100.0, 0.0, -MOST):
        log_mu = torch.full((T, B, A), recorded)
        loss = policy_cloning(log_pi, log_mu, kept)
        (slope,) = torch.autograd.grad(loss.sum(), log_pi)
        assert loss.isfinite().all() and slope.isfinite().all(), recorded
        assert not trusted_rows(log_pi, log_mu, 0.3).logical_and(log_mu[..., 0] < 0).any()
        assert value_cloning(torch.zeros(T, B), log_mu[..., 0], kept).sum().isfinite()

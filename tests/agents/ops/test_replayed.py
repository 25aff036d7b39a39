"""Trust of replayed rows, and what holds of their losses wherever nothing is kept or numbers are extreme."""

import torch

from rainbow_iqn_apex.agents.distributions import kl_divergence
from rainbow_iqn_apex.agents.impala.losses import policy_cloning, trusted_rows, value_cloning
from rainbow_iqn_apex.memory.chunk import MOST

T, B, A = 7, 3, 5


def test_the_threshold_itself_is_not_trusted_nor_is_what_is_not_a_number() -> None:
    log_pi, log_mu = torch.randn(2, T, B, A).log_softmax(3)
    divergence = kl_divergence(log_pi, log_mu)  # [T, B]
    threshold = divergence[2, 1].item()
    assert torch.equal(trusted_rows(log_pi, log_mu, threshold), divergence < threshold)
    assert not trusted_rows(log_pi, log_mu, threshold)[2, 1]
    assert not trusted_rows(torch.full((T, B, A), torch.nan), log_mu, torch.inf).any()


def test_nothing_kept_is_nothing_learned() -> None:
    none = torch.zeros(T, B, dtype=torch.bool)
    log_pi = torch.full((T, B, A), torch.inf, requires_grad=True)
    value = torch.full((T, B), torch.nan, requires_grad=True)
    loss = policy_cloning(log_pi, log_pi, none).sum() + value_cloning(value, value, none).sum()
    assert loss == 0 and all(not slope.any() for slope in torch.autograd.grad(loss, (log_pi, value)))


def test_cloning_stays_finite_for_whatever_a_chunk_may_hold_and_learns_from_rows_kept_alone() -> None:
    # Mutations: recorded logarithms as they are; exp(1e9) is infinite, and one message would end the run. No `detach`.
    kept = torch.arange(T * B).reshape(T, B) % 4 > 0
    inside = kept.unsqueeze(2)
    log_pi = torch.where(inside, torch.zeros(T, B, A).log_softmax(2), torch.inf).requires_grad_()
    value = torch.where(kept, torch.zeros(T, B), torch.inf).requires_grad_()
    for recorded in (MOST, 100.0, 0.0, -3.0, -MOST):
        log_mu = torch.full((T, B, A), recorded, requires_grad=True)
        losses = policy_cloning(log_pi, log_mu, kept) + value_cloning(value, log_mu[..., 0], kept)
        slopes = torch.autograd.grad(losses.sum(), (log_pi, value, log_mu), allow_unused=True)
        assert losses.isfinite().all() and slopes[2] is None, recorded
        torch.testing.assert_close(slopes[0], torch.where(inside, -log_mu.detach().clamp(max=0).exp(), 0))
        torch.testing.assert_close(slopes[1], torch.where(kept, -2 * log_mu[..., 0].detach(), 0))
        assert not trusted_rows(log_pi, log_mu, 0.3).logical_and(log_mu[..., 0] < 0).any()

"""PopArt: what it outputs before and after its statistics change."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex.agents.networks.network import acting_tensors
from rainbow_iqn_apex.agents.on_policy.statistics import PopArt

T, B, F = 7, 5, 11
ALL = torch.ones(T, B, dtype=torch.bool)


def batch(seed: int, mean: float, spread: float) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(mean, spread, (T, B))).float(), torch.from_numpy(rng.random((T, B)) < 0.7)


def check_values_stay(observe: Callable[[PopArt, Tensor, Tensor], None]) -> None:
    torch.manual_seed(0)
    popart, features = PopArt(F), torch.randn(T, B, F)
    for seed, (mean, spread) in enumerate([(0, 1), (300, 50), (-4000, 0.01), (2, 1e3)]):
        before = popart(features).detach()
        targets, kept = batch(seed, mean, spread)
        observe(popart, targets, kept)
        scale = float(popart.std)  # rounding is that of numbers of this size
        torch.testing.assert_close(popart(features).detach(), before, rtol=1e-5, atol=1e-5 * scale)


def test_values_do_not_move_when_statistics_do() -> None:
    check_values_stay(PopArt.observe)


def test_the_check_notices_a_head_that_is_not_rewritten() -> None:
    def mutant(popart: PopArt, targets: Tensor, kept: Tensor) -> None:
        weight, bias = popart.linear.weight.detach().clone(), popart.linear.bias.detach().clone()
        popart.observe(targets, kept)
        with torch.no_grad():
            popart.linear.weight.copy_(weight)
            popart.linear.bias.copy_(bias)

    with pytest.raises(AssertionError):
        check_values_stay(mutant)


def test_statistics_are_those_of_all_targets_that_are_kept() -> None:
    popart = PopArt(F)
    seen = []
    for seed in range(6):
        targets, kept = batch(seed, 40 * seed, 3)
        popart.observe(torch.where(kept, targets, torch.nan), kept)
        seen.append(targets[kept])
    numbers = torch.cat(seen).double()
    assert popart.mean.item() == pytest.approx(numbers.mean().item())
    assert popart.std.item() == pytest.approx(numbers.std(correction=0).item())
    normalised = popart.normalise(numbers)
    assert normalised.mean().item() == pytest.approx(0, abs=1e-5)
    assert normalised.std(correction=0).item() == pytest.approx(1, abs=1e-5)


def test_nothing_kept_and_equal_targets_leave_numbers_finite() -> None:
    torch.manual_seed(1)
    popart, features = PopArt(F), torch.randn(T, B, F)
    before = popart(features).detach()
    popart.observe(torch.full((T, B), torch.nan), ~ALL)
    assert torch.equal(popart(features), before)
    popart.observe(torch.full((T, B), 5.0), ALL)
    assert popart.std.item() == pytest.approx(1e-4) and popart.mean.item() == 5
    torch.testing.assert_close(popart(features).detach(), before, rtol=1e-4, atol=1e-4)


def test_an_actor_needs_what_is_published_and_an_optimiser_leaves_the_statistics() -> None:
    popart, actor, features = PopArt(F), PopArt(F), torch.randn(T, B, F)
    popart.observe(*batch(0, 9, 2))
    published = {name: tensor.detach().clone() for name, tensor in acting_tensors(popart).items()}
    assert {"mean", "std"} < published.keys() < popart.state_dict().keys()
    assert all(tensor.dtype == torch.float32 for tensor in published.values())
    actor.load_state_dict(published, strict=False)
    assert torch.equal(popart(features), actor(features))
    optimiser = torch.optim.Adam(popart.parameters(), 0.1)
    popart(features).square().mean().backward()
    optimiser.step()
    assert popart.mean == published["mean"] and popart.std == published["std"]

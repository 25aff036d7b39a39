"""V-trace against its definition as a sum."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex.agents.on_policy.losses import estimate
from rainbow_iqn_apex.agents.on_policy.options import OnPolicyOptions
from rainbow_iqn_apex.agents.ops import LAST
from rainbow_iqn_apex.agents.ops.vtrace import Targets, Thresholds, vtrace
from rainbow_iqn_apex.args import parse
from rainbow_iqn_apex.memory.rows import StepType
from tests.agents.ops.sequences import MISTAKES, mistaken, random_sequences
from tests.ground_truth import vtrace as truth
from tests.ground_truth.gae import Rows

GAMMA = 0.97
Function = Callable[..., Targets]


def sequences(seed: int, T: int, B: int) -> dict[str, Any]:
    """Draw rows of B environments with ratios on both sides of 1."""
    rng = np.random.default_rng(seed)
    return {"log_ratio": torch.from_numpy(rng.normal(0, 0.7, (T, B)))} | random_sequences(rng, T, B)


def trusted_sequences(seed: int, T: int, B: int) -> dict[str, Any]:
    """Draw rows of which every third is not trusted."""
    trusted = torch.from_numpy(np.random.default_rng(seed + 100).random((T, B)) < 2 / 3)
    return sequences(seed, T, B) | {"trusted": trusted}


def check(
    function: Function, seed: int, thresholds: Thresholds, T: int = 12, B: int = 40, drawn: Any = sequences
) -> None:
    given = drawn(seed, T, B)
    found = function(**given, gamma=GAMMA, thresholds=thresholds)
    trusted = given.get("trusted", torch.ones(T, B, dtype=torch.bool))
    for b in range(B):
        rows = Rows(*(given[name][:, b].numpy() for name in Rows._fields))
        ratio = given["log_ratio"][:, b].exp().numpy()
        value, advantage = truth.vtrace(rows, ratio, GAMMA, *thresholds, trusted[:, b].numpy())
        np.testing.assert_allclose(found.value[:, b], value, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.advantage[:, b], advantage, rtol=1e-9, atol=1e-9)
    assert torch.equal(found.learnable, (given["step_type"][:-1] != LAST) & trusted)


of_seeds = pytest.mark.parametrize("seed", range(10))
of_thresholds = pytest.mark.parametrize(
    "thresholds",
    [
        Thresholds(),
        Thresholds(2.0, 0.5, 1.5, 0.9),
        Thresholds(1e9, 1e9, 1e9),
        Thresholds(0.3, 1.2, 0.7, 0),
        Thresholds(advantage=None),
    ],
)


@of_seeds
@of_thresholds
def test_it_is_the_sum_of_the_definition(seed: int, thresholds: Thresholds) -> None:
    check(vtrace, seed, thresholds)


@of_seeds
@of_thresholds
def test_rows_that_are_not_trusted_end_the_sums(seed: int, thresholds: Thresholds) -> None:
    check(vtrace, seed, thresholds, drawn=trusted_sequences)


def rho_twice(**given: Any) -> Targets:
    found = vtrace(**given)
    return found._replace(advantage=found.advantage * given["log_ratio"].exp().clamp(max=given["thresholds"].advantage))


@pytest.mark.parametrize("mutant", [rho_twice, *(mistaken(vtrace, mistake) for mistake in MISTAKES)])
def test_the_check_notices(mutant: Function) -> None:
    with pytest.raises(AssertionError):
        check(mutant, 0, Thresholds(2.0, 1.0, 2.0, 1.0))


def only_left_out(**given: Any) -> Targets:
    """Leave untrusted rows out of the losses, but let traces through them."""
    found, plain = vtrace(**given), vtrace(**given | {"trusted": None})
    return Targets(*(torch.where(given["trusted"], *parts) for parts in zip(plain, found, strict=True)))


def mask_of_the_next_row(**given: Any) -> Targets:
    return vtrace(**given | {"trusted": given["trusted"].roll(-1, 0)})


def still_learned(**given: Any) -> Targets:
    return vtrace(**given)._replace(learnable=given["step_type"][:-1] != LAST)


@pytest.mark.parametrize("mutant", [only_left_out, mask_of_the_next_row, still_learned])
def test_the_check_of_trust_notices(mutant: Function) -> None:
    with pytest.raises(AssertionError):
        check(mutant, 0, Thresholds(2.0, 1.0, 2.0, 1.0), drawn=trusted_sequences)


def test_targets_carry_no_gradient_and_shapes_must_fit() -> None:
    given = sequences(1, 4, 3)
    value: Tensor = given["value"].requires_grad_()
    found = vtrace(**given, gamma=GAMMA, thresholds=Thresholds())
    assert not found.value.requires_grad and not found.advantage.requires_grad
    cut = {"value": value[:-1], "log_ratio": given["log_ratio"][:-1], "trusted": torch.ones(4, 1, dtype=torch.bool)}
    for name, part in cut.items():
        with pytest.raises(ValueError, match="shapes do not fit"):
            vtrace(**given | {name: part}, gamma=GAMMA, thresholds=Thresholds())


def test_ratios_beyond_all_numbers_leave_targets_finite() -> None:
    given = sequences(2, 4, 3)
    found = vtrace(**given | {"log_ratio": torch.full((4, 3), 1e30)}, gamma=GAMMA, thresholds=Thresholds())
    assert found.value.isfinite().all() and found.advantage.isfinite().all()


@pytest.mark.parametrize(("policy_loss", "weight"), [("vpg", 0.25), ("ppo", 1.0), ("awr", 1.0), ("vmpo", 1.0)])
def test_a_loss_with_a_ratio_of_its_own_gets_advantages_without_one(policy_loss: str, weight: float) -> None:
    # Mutation: weigh the advantages in any case: PPO's gradient then has the square of the ratio.
    args = parse(f"--agent ppo --advantage vtrace --policy-loss {policy_loss}".split(), "test", "")
    assert isinstance(args.own, OnPolicyOptions)
    quarter, none = torch.full((1, 1), 0.25).log(), torch.zeros(2, 1)
    rows = (none, torch.ones(2, 1), none, torch.full((2, 1), int(StepType.MID), dtype=torch.uint8))
    assert estimate(args.own, quarter, *rows, 0.9).advantage.item() == pytest.approx(weight)

"""V-trace against its definition as a sum, and the equalities that it must satisfy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from agents.ops import LAST
from agents.ops.n_step import n_step
from agents.ops.traces import Targets
from agents.ops.vtrace import Thresholds, vtrace
from tests.agents.ops.sequences import random_sequences
from tests.ground_truth import vtrace as truth

GAMMA = 0.97
Function = Callable[..., Targets]


def sequences(seed: int, T: int, B: int) -> dict[str, Any]:
    """Draw rows of B environments with ratios on both sides of 1."""
    rng = np.random.default_rng(seed)
    return {"log_ratio": torch.from_numpy(rng.normal(0, 0.7, (T, B)))} | random_sequences(rng, T, B)


def check(function: Function, seed: int, thresholds: Thresholds, T: int = 12, B: int = 40) -> None:
    given = sequences(seed, T, B)
    found = function(**given, gamma=GAMMA, thresholds=thresholds)
    for b in range(B):
        parts = (given[name][:, b].numpy() for name in ("value", "reward", "discount", "step_type"))
        rows = truth.Rows(given["log_ratio"][:, b].exp().numpy(), *parts)
        value, advantage = truth.vtrace(rows, GAMMA, *thresholds)
        np.testing.assert_allclose(found.value[:, b], value, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.advantage[:, b], advantage, rtol=1e-9, atol=1e-9)
    assert torch.equal(found.learnable, given["step_type"][:-1] != LAST)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    "thresholds",
    [Thresholds(), Thresholds(2.0, 0.5, 1.5, 0.9), Thresholds(1e9, 1e9, 1e9), Thresholds(0.3, 1.2, 0.7, 0)],
)
def test_it_is_the_sum_of_the_definition(seed: int, thresholds: Thresholds) -> None:
    check(vtrace, seed, thresholds)


def shifted_reward(**given: Any) -> Targets:
    return vtrace(**given | {"reward": given["reward"].roll(-1, 0)})


def rho_twice(**given: Any) -> Targets:
    found = vtrace(**given)
    return found._replace(advantage=found.advantage * given["log_ratio"].exp().clamp(max=given["thresholds"].advantage))


def across_ends(**given: Any) -> Targets:
    return vtrace(**given | {"step_type": torch.ones_like(given["step_type"])})


def ends_that_bootstrap(**given: Any) -> Targets:
    return vtrace(**given | {"discount": given["discount"].clamp(min=0.5)})


@pytest.mark.parametrize("mutant", [shifted_reward, rho_twice, across_ends, ends_that_bootstrap])
def test_the_check_notices(mutant: Function) -> None:
    with pytest.raises(AssertionError):
        check(mutant, 0, Thresholds(2.0, 1.0, 2.0, 1.0))


def test_on_policy_and_without_decay_it_is_the_longest_n_step_return() -> None:
    T = 12
    given = sequences(3, T, 40)
    found = vtrace(
        **given | {"log_ratio": torch.zeros(T, 40, dtype=torch.float64)}, gamma=GAMMA, thresholds=Thresholds()
    )
    for t in range(T):
        rows = (given[name][t:] for name in ("reward", "discount", "step_type"))
        reward, discount, step_type = rows
        ahead = n_step(reward, discount, step_type, GAMMA)
        bootstrap = given["value"][t:].gather(0, ahead.steps.unsqueeze(0)).squeeze(0)
        wanted = torch.where(found.learnable[t], ahead.return_ + ahead.discount * bootstrap, given["value"][t])
        torch.testing.assert_close(found.value[t], wanted)


def test_without_thresholds_it_is_importance_sampling_at_every_step() -> None:
    # v_t = V_t + sum over k of (gamma^k * product of ratios t..k) times the difference at k, within one long episode.
    T, rng = 6, np.random.default_rng(0)
    ratio, value, reward = rng.uniform(0.2, 3, T), rng.normal(size=T + 1), rng.normal(size=T + 1)
    ones = torch.ones(T + 1, 1, dtype=torch.float64)
    found = vtrace(
        *(torch.from_numpy(part)[:, None] for part in (np.log(ratio), value, reward)),
        ones, ones.to(torch.uint8), GAMMA, Thresholds(*[float("inf")] * 3),
    )  # fmt: skip
    for t in range(T):
        differences = reward[1:] + GAMMA * value[1:] - value[:-1]
        wanted = value[t] + sum(GAMMA ** (k - t) * ratio[t : k + 1].prod() * differences[k] for k in range(t, T))
        assert float(found.value[t, 0]) == pytest.approx(wanted)


def test_lambda_scales_the_traces() -> None:
    def values(log_ratio: Tensor, c: float, trace: float) -> Tensor:
        given = sequences(5, 12, 40) | {"log_ratio": log_ratio}
        return vtrace(**given, gamma=GAMMA, thresholds=Thresholds(c=c, trace=trace)).value

    anywhere = sequences(5, 12, 40)["log_ratio"]
    above = torch.where(anywhere.exp() >= 0.5, anywhere, 1.0)  # there both traces are 0.4 gamma
    torch.testing.assert_close(values(above, 0.5, 0.8), values(above, 0.4, 1.0))
    assert not torch.allclose(values(anywhere, 0.5, 0.8), values(anywhere, 0.4, 1.0)), "elsewhere they differ"


def test_targets_carry_no_gradient_and_shapes_must_fit() -> None:
    given = sequences(1, 4, 3)
    value: Tensor = given["value"].requires_grad_()
    found = vtrace(**given | {"value": value}, gamma=GAMMA, thresholds=Thresholds())
    assert not found.value.requires_grad and not found.advantage.requires_grad
    with pytest.raises(ValueError, match="shapes do not fit"):
        vtrace(**given | {"value": value[:-1]}, gamma=GAMMA, thresholds=Thresholds())
    with pytest.raises(ValueError, match="shapes do not fit"):
        vtrace(**given | {"log_ratio": given["log_ratio"][:-1]}, gamma=GAMMA, thresholds=Thresholds())


def test_ratios_beyond_all_numbers_leave_targets_finite() -> None:
    given = sequences(2, 4, 3)
    found = vtrace(**given | {"log_ratio": torch.full((4, 3), 1e30)}, gamma=GAMMA, thresholds=Thresholds())
    assert found.value.isfinite().all() and found.advantage.isfinite().all()

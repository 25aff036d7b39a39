"""Statistics in parts against those of all numbers at once."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex.agents.on_policy.statistics import (
    Moments,
    Normaliser,
    RunningStatistics,
    discounted_reward,
    merged,
    moments,
)
from rainbow_iqn_apex.agents.ops import FIRST, LAST
from rainbow_iqn_apex.memory.environment_spec import Field
from tests.ground_truth.episodes import random_stream

SHAPE = (3, 2)


def observed(numbers: Tensor) -> RunningStatistics:
    statistics = RunningStatistics(SHAPE)
    statistics.observe(numbers)
    return statistics


def normalised(statistics: RunningStatistics, numbers: Tensor) -> Tensor:
    """Normalise as a network does that was brought up to date."""
    normaliser = Normaliser(Field(SHAPE, "float32"))
    with torch.no_grad():
        normaliser.mean.copy_(statistics.mean)
        normaliser.scale.copy_(statistics.scale)
        found: Tensor = normaliser(numbers.float())
    return found


def numbers_of(seed: int) -> Tensor:
    """Draw numbers [N, 3, 2] of different means and spreads, all a good deal off 0."""
    rng = np.random.default_rng(seed)
    return torch.from_numpy(rng.normal(rng.normal(0, 30, SHAPE), rng.uniform(0.1, 5, SHAPE), (500, *SHAPE)))


def check(merge: Callable[[Moments, Moments], Moments], seed: int) -> None:
    """Split numbers anywhere, merge the parts in any order, by a tree or one after the other."""
    rng, numbers = np.random.default_rng(seed), numbers_of(seed)
    cuts = sorted(int(cut) for cut in rng.integers(0, len(numbers) + 1, int(rng.integers(1, 40))))
    parts = [moments(part, torch.ones(len(part), dtype=torch.bool)) for part in torch.tensor_split(numbers, cuts)]
    while len(parts) > 1:  # some are empty
        part = parts.pop(int(rng.integers(len(parts))))
        place = int(rng.integers(len(parts)))
        parts[place] = merge(parts[place], part)
    found = parts[0]
    assert found.samples == len(numbers)
    np.testing.assert_allclose(found.mean, numbers.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.deviation / found.samples, numbers.var(0, correction=0), rtol=1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_merged_parts_are_all_at_once_whatever_the_split(seed: int) -> None:
    check(merged, seed)


MUTANTS: dict[str, Callable[[Moments, Moments], Moments]] = {
    "a part that is merged twice": lambda a, b: merged(merged(a, b), b),
    "means that are not weighted": lambda a, b: merged(a, b)._replace(mean=(a.mean + b.mean) / 2),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_check_notices(name: str) -> None:
    with pytest.raises(AssertionError):
        check(MUTANTS[name], 0)


def test_small_spreads_far_from_0_keep_their_digits() -> None:
    numbers = numbers_of(1) + 1e8
    found = observed(numbers[:100])
    for row in numbers[100:]:
        found.observe(row.unsqueeze(0))
    # Mutation: E x² - (E x)², which has lost all digits here
    np.testing.assert_allclose(found.variance, numbers.var(0, correction=0), rtol=1e-8)


def test_moments_are_those_of_what_is_kept() -> None:
    numbers = numbers_of(2)
    kept = torch.from_numpy(np.random.default_rng(3).random(len(numbers)) < 0.5)
    found, wanted = moments(torch.where(kept[:, None, None], numbers, torch.nan), kept), observed(numbers[kept])
    np.testing.assert_allclose(found.mean, wanted.mean, rtol=1e-12)
    np.testing.assert_allclose(found.deviation / found.samples, wanted.variance, rtol=1e-12)


def test_normalised_numbers_are_clipped_float32() -> None:
    numbers = numbers_of(4)
    found = normalised(observed(numbers), numbers)
    assert found.dtype == torch.float32 and found.shape == numbers.shape
    torch.testing.assert_close(found.mean(0), torch.zeros(SHAPE), rtol=0, atol=1e-5)
    torch.testing.assert_close(found.std(0, correction=0), torch.ones(SHAPE), rtol=0, atol=1e-5)
    assert (
        normalised(observed(numbers), torch.full((4, *SHAPE), 1e9)).tolist() == torch.full((4, *SHAPE), 10.0).tolist()
    )


def test_before_anything_was_observed_nothing_changes() -> None:
    numbers = torch.tensor([[[0.5, -2.0]] * 3])
    torch.testing.assert_close(normalised(RunningStatistics(SHAPE), numbers), numbers)


def test_numbers_that_never_change_become_0() -> None:
    assert normalised(observed(torch.full((5, *SHAPE), 7.0)), torch.full((2, *SHAPE), 7.0)).count_nonzero() == 0


def test_a_state_goes_on_where_it_was_taken() -> None:
    numbers = numbers_of(5)
    first = observed(numbers[:70])
    state = first.state_dict()
    first.observe(numbers[70:])
    restored = RunningStatistics(SHAPE)
    restored.load_state_dict(state)
    torch.testing.assert_close(restored.mean, numbers[:70].mean(0))  # a state is a copy
    restored.observe(numbers[70:])
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, restored.state_dict()[name])
    with pytest.raises(ValueError, match="a state"):
        RunningStatistics((3,)).load_state_dict(state)
    with pytest.raises(ValueError, match="numbers"):
        restored.observe(torch.zeros(4, 3))


def test_discounted_rewards_are_sums_of_their_episodes() -> None:
    gamma, rows, envs = 0.9, 60, 4
    streams = [random_stream(np.random.default_rng(seed), rows) for seed in range(envs)]
    found = torch.zeros(envs, dtype=torch.float64)
    for t in range(rows):
        reward = torch.tensor([stream.reward[t] for stream in streams], dtype=torch.float64)  # NaN at FIRST
        step_type = torch.tensor([stream.step_type[t] for stream in streams], dtype=torch.uint8)
        found = discounted_reward(found, reward, step_type, gamma)
        for e, stream in enumerate(streams):
            episode, step = stream.places[t]
            # Mutation: reset at LAST, which loses the last reward
            wanted = sum(gamma ** (step - 1 - k) * episode.rewards[k] for k in range(step))
            assert found[e].item() == pytest.approx(wanted)
            assert (stream.step_type[t] == FIRST) == (step == 0)
    assert any(stream.step_type[t] == LAST for stream in streams for t in range(rows))

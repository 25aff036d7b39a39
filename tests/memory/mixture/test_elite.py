"""Strategies choose as defined: never fewer than asked, none twice while there are enough, whatever the count."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rainbow_iqn_apex.memory.mixture.tables import draw, nb_candidates, select
from tests.ground_truth import mixture as truth

Select = Callable[[int, Tensor, Tensor, int], Tensor]
counts = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=40)  # many ties


def check(function: Select, strategy: int, candidates: list[tuple[int, int]], n: int) -> None:
    distances, times = (list(values) for values in zip(*candidates, strict=True))
    found = function(strategy, torch.tensor(distances, dtype=torch.float32), torch.tensor(times), n)
    assert found.shape == (n,) and found.dtype == torch.int64
    often = Counter(found.tolist())
    assert set(often) <= set(range(len(candidates)))
    fewest = n // len(candidates)
    assert max(often.values()) <= fewest + (n % len(candidates) > 0), "as evenly as possible"
    assert fewest == 0 or set(often) == set(range(len(candidates)))
    assert found.tolist() == truth.select(strategy, [float(d) for d in distances], times, n)


@given(counts, st.integers(1, 25), st.sampled_from([1, 2, 3, 4]))
def test_strategies_choose_as_defined(candidates: list[tuple[int, int]], n: int, strategy: int) -> None:
    check(select, strategy, candidates, n)


def farthest(strategy: int, distances: Tensor, times: Tensor, n: int) -> Tensor:
    """A similarity that is sorted as a distance."""
    return select(strategy, -distances, times, n)


def most_often(strategy: int, distances: Tensor, times: Tensor, n: int) -> Tensor:
    return select(strategy, distances, -times, n)


def whole_parts(strategy: int, distances: Tensor, times: Tensor, n: int) -> Tensor:
    """Parts of ⌊C / n⌋ candidates, and the rest never chosen; all the first where there are too few."""
    order = distances.argsort(stable=True)
    return order[torch.arange(n) * (len(order) // n)] if strategy == 2 else select(strategy, distances, times, n)


def unstable(strategy: int, distances: Tensor, times: Tensor, n: int) -> Tensor:
    return len(distances) - 1 - select(strategy, distances.flip(0), times.flip(0), n)


@pytest.mark.parametrize(
    ("mutation", "strategies"),
    [(farthest, (1, 2, 3, 4)), (most_often, (3, 4)), (whole_parts, (2,)), (unstable, (1, 2, 3, 4))],
)
def test_the_check_notices(mutation: Select, strategies: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(3)
    for strategy in strategies:
        with pytest.raises(AssertionError):
            for _ in range(50):
                numbers = torch.randint(5, (11, 2), generator=generator).tolist()
                check(mutation, strategy, [(a, b) for a, b in numbers], 4)


@given(st.integers(1, 40), st.decimals("1", "9", places=2), st.integers(0, 30), st.integers(1, 20), st.integers(1, 300))
def test_candidates_become_fewer_linearly(n: int, start: object, updates: int, over: int, available: int) -> None:
    found = nb_candidates(n, float(str(start)), updates, over, available)
    assert found == truth.nb_candidates(n, str(start), updates, over, available)
    assert min(n, available) <= found <= available


def check_draws(function: Callable[[int, int, torch.Generator], Tensor]) -> None:
    generator = torch.Generator().manual_seed(5)
    for available in range(1, 9):
        for count in range(1, 20):
            often = Counter(function(available, count, generator).tolist())
            assert sum(often.values()) == count and set(often) <= set(range(available))
            assert max(often.values()) - min(often.get(i, 0) for i in range(available)) <= 1
    shares = torch.stack([torch.bincount(function(7, 3, generator), minlength=7) for _ in range(3000)]).sum(0) / 3000
    assert ((shares - 3 / 7).abs() < 0.06).all()


def test_draws_are_even() -> None:
    check_draws(draw)
    for mutation in (
        lambda available, count, generator: torch.randint(available, (count,), generator=generator),
        lambda available, count, _: torch.arange(count) % available,
    ):
        with pytest.raises(AssertionError):
            check_draws(mutation)

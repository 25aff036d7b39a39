"""The trees of priorities against a plain array, draws in proportion, boundaries between leaves, and many updates."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from rainbow_iqn_apex.memory import segment_tree
from rainbow_iqn_apex.memory.fast import binary_tree
from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.memory.segment_tree import SegmentTree
from tests.ground_truth import priorities as truth
from tests.memory.trees import Make, binary, each_host_tree, each_tree, filled, find, some_priorities
from tests.memory.valid import check_valid


def brent_kung(children: Tensor) -> Tensor:
    """The prefix sums [B, F] of a work-efficient parallel scan, as a GPU adds them up; F a power of two."""
    sums, size, step = children.clone(), children.shape[1], 1
    while step < size:
        sums[:, 2 * step - 1 :: 2 * step] += sums[:, step - 1 :: 2 * step]
        step *= 2
    while step > 1:
        step //= 2
        sums[:, 3 * step - 1 :: 2 * step] += sums[:, 2 * step - 1 : size - step : 2 * step]
    return sums


class AddsDifferences(SegmentTree):
    """The forerunner's mistake: sums follow the changes and keep every rounding error."""

    def set(self, indices: Tensor, values: Tensor, where: Tensor | None = None) -> None:  # noqa: ARG002
        change = values - self.get(indices)
        self._leaves.index_copy_(0, indices, values)
        for sums in reversed(self._sums):
            indices = indices // self._fan_out
            sums.index_add_(0, indices, change)


class ForgetsTheRoot(SegmentTree):
    def set(self, indices: Tensor, values: Tensor, where: Tensor | None = None) -> None:  # noqa: ARG002
        root = self.total
        super().set(indices, values)
        self._root.fill_(root)


class OneOff(SegmentTree):
    def sample(self, values: Tensor) -> Tensor:
        return (super().sample(values) + 1) % self.capacity


# Random operations against a plain array. Priorities are sixteenths, so that every sum is exact and so is every search.

writes = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 40) | st.just(0)), min_size=1, max_size=12)


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, int, list[list[tuple[int, int]]]]:
    capacity = draw(st.sampled_from([1, 2, 3, 4, 5, 9, 17, 64, 65, 127, 128, 129, 300]))
    return capacity, draw(st.sampled_from([2, 3, 4, 128])), draw(st.lists(writes, min_size=1, max_size=8))


def check_run(make: Make, run: tuple[int, int, list[list[tuple[int, int]]]], device: str = "cpu") -> None:
    """Write, duplicates among it, and compare every leaf, the total, and a search of each whole sixteenth."""
    capacity, fan_out, batches = run
    tree, reference = make(capacity, device, fan_out), truth.PriorityArray(capacity)
    for batch in batches:
        pairs = [(index % capacity, sixteenths / 16) for index, sixteenths in batch]
        if device != "cpu":  # where any one of equal indices may win
            pairs = list(dict(pairs).items())
        indices, values = (np.array(column) for column in zip(*pairs, strict=True))
        tree.set(torch.from_numpy(indices).to(device), torch.from_numpy(values).to(device))
        reference.set(indices, values)
        check_valid(tree)
        np.testing.assert_array_equal(tree.get(torch.arange(capacity, device=device)).cpu(), reference.values)
        assert tree.total.item() == reference.total()
        if reference.total() > 0:
            edges = np.arange(0, reference.total(), 1 / 16)
            np.testing.assert_array_equal(find(tree, edges), [reference.find(edge) for edge in edges])


@each_tree
@settings(max_examples=40)
@given(run=runs())
def test_random_operations_agree_with_a_plain_array(
    make: Make, device: str, run: tuple[int, int, list[list[tuple[int, int]]]]
) -> None:
    check_run(make, run, device)


def only_the_leaves(nodes: Array, first: int, _: int, indices: Array, values: Array) -> tuple[int, int]:
    nodes[first + indices] = values
    nodes[1] = nodes[first:].sum()
    return 0, 0


Mutant = tuple[Make, tuple[Any, str, Any] | None]  # a tree; where, and what stands in the place of which function
STOPS_TOO_EARLY = (segment_tree, "_first_above", lambda prefix, value: torch.searchsorted(prefix, value))
WRONG_OPERATIONS: dict[str, Mutant] = {
    "the root stays": (ForgetsTheRoot, None),
    "one off": (OneOff, None),
    "a search that stops too early": (SegmentTree, STOPS_TOO_EARLY),
    "sums of a binary tree stay": (binary, (binary_tree, "_write", only_the_leaves)),
}


def made_wrong(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> Make:
    make, change = mutant
    if change:
        monkeypatch.setattr(*change)
    return make


@pytest.mark.parametrize("name", WRONG_OPERATIONS)
def test_random_operations_see(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make = made_wrong(WRONG_OPERATIONS[name], monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        check_run(make, (17, 4, [[(3, 5), (4, 1)], [(16, 2), (3, 0)]]))


# Frequencies


def check_frequencies(make: Make, size: int, device: str = "cpu") -> None:
    """Chi-square test of 40 000 draws, or 20 a leaf; a leaf of priority 0 must not come up at all."""
    priorities = some_priorities(size, size)
    tree = filled(priorities, make, device=device)
    rng = np.random.default_rng(size)
    total = tree.total.item()
    counts = np.zeros(size, np.int64)
    for _ in range(max(10, size // 200)):
        counts += np.bincount(find(tree, rng.random(4000) * total), minlength=size)
    assert not counts[priorities == 0].any()
    expected = counts.sum() * priorities / priorities.sum()
    if size > 1:
        assert chisquare(counts[priorities > 0], expected[priorities > 0]).pvalue > 1e-3


@each_tree
@pytest.mark.parametrize("size", [1, 2, 127, 128, 129, 20_000])
def test_leaves_come_up_in_proportion(size: int, make: Make, device: str) -> None:
    check_frequencies(make, size, device)


class SlightlyWrong(SegmentTree):
    """Draws from priorities that were raised to another power."""

    def set(self, indices: Tensor, values: Tensor, where: Tensor | None = None) -> None:
        super().set(indices, values**1.3, where)


@pytest.mark.parametrize(("mutant", "size"), [(OneOff, 129), (SlightlyWrong, 129), (SlightlyWrong, 20_000)])
def test_frequencies_see(mutant: Make, size: int) -> None:
    with pytest.raises(AssertionError):
        check_frequencies(mutant, size)


# Zeros and rounding


def edges_of(priorities: Array) -> Array:
    """Values at, just below and just above every boundary between leaves, by several ways of adding up."""
    rows = np.pad(priorities, (0, -len(priorities) % 128)).reshape(-1, 128)
    blocks = np.concatenate([[0], rows.sum(1).cumsum()[:-1]])
    sums = np.concatenate([[0.0], priorities.cumsum(), (blocks[:, None] + rows.cumsum(1)).ravel(), blocks])
    return np.concatenate([sums, np.nextafter(sums, 0), np.nextafter(sums, np.inf), [priorities.sum(), 1e308]])


def check_zeros(make: Make = SegmentTree, device: str = "cpu", rounds: int = 10) -> int:
    """Draw, mostly at the boundaries of leaves, and never hit a leaf of priority 0; return the number of draws."""
    drawn = 0
    for seed in range(rounds):
        rng = np.random.default_rng(seed)
        size = [20_000, 300, 16_384][seed % 3]
        priorities = rng.random(size) * 10.0 ** rng.integers(-3, 4, size)
        priorities[rng.random(size) < rng.choice([0.1, 0.5, 0.98])] = 0
        priorities[: size // 9] = priorities[-size // 5 :] = 0
        priorities[size // 2] = 5e-324  # the smallest number there is
        tree = filled(priorities, make, device=device)
        values = np.concatenate([edges_of(priorities), rng.random(30_000) * tree.total.item()])
        for part in np.array_split(values, 20):
            found = find(tree, part)
            assert (priorities[found] > 0).all()
        drawn += len(values)
    return drawn


@each_tree
def test_a_leaf_of_priority_zero_is_never_drawn(make: Make, device: str) -> None:
    assert check_zeros(make, device) > 1e6


def enters_what_has_no_priority(nodes: Array, first: int, values: Array) -> Array:
    found = np.ones(len(values), np.int64)
    value = np.maximum(values, 0)
    while found[0] < first:
        left = nodes[2 * found]
        right = value >= left
        value = np.where(right, value - left, value)
        found = 2 * found + right
    return found - first


WRONG_DRAWS: dict[str, Mutant] = {
    "one off": (OneOff, None),
    "a search that stops too early": (SegmentTree, STOPS_TOO_EARLY),
    "a value that is not clamped": (SegmentTree, (torch, "minimum", lambda value, _: value)),
    "a parallel scan left as it is": (SegmentTree, (segment_tree, "_scan", brent_kung)),
    "a binary search": (binary, (binary_tree, "_search", enters_what_has_no_priority)),
}


@pytest.mark.parametrize("name", WRONG_DRAWS)
def test_zero_check_sees(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make = made_wrong(WRONG_DRAWS[name], monkeypatch)
    with pytest.raises((AssertionError, IndexError)):
        check_zeros(make, rounds=3)


def test_a_parallel_scan_draws_no_zero_either(monkeypatch: pytest.MonkeyPatch) -> None:
    def scan(children: Tensor) -> Tensor:
        return segment_tree._flatten_scan(brent_kung(children), children)

    monkeypatch.setattr(segment_tree, "_scan", scan)
    check_zeros(rounds=3)
    check_frequencies(SegmentTree, 129)


@each_host_tree
def test_a_value_on_a_boundary_belongs_to_the_next_leaf_with_a_priority(make: Make) -> None:
    tree = filled(np.array([0, 2.0, 0, 0, 1.0, 0]), make, fan_out=2)
    assert find(tree, np.array([0, 1.5, 2, 2.5, 3, 7, -1])).tolist() == [1, 1, 4, 4, 4, 4, 1]


# Drift


def check_drift(make: Make, updates: int) -> None:
    """Update again and again, by 12 orders of magnitude; the sums must stay those of the leaves."""
    tree = make(700, fan_out=16)
    generator = torch.Generator().manual_seed(0)
    indices = torch.randint(700, (updates,), generator=generator)
    values = 10 ** (12 * torch.rand(updates, generator=generator, dtype=torch.float64) - 6)
    for index, value in zip(torch.split(indices, 1), torch.split(values, 1), strict=True):
        tree.set(index, value)
    leaves = torch.arange(700)
    tree.set(leaves, tree.get(leaves).clamp(max=1e-3))
    assert tree.total.item() == pytest.approx(math.fsum(tree.get(leaves).tolist()), rel=1e-13)
    check_valid(tree)


@pytest.mark.slow
@each_host_tree
def test_sums_do_not_drift(make: Make) -> None:
    check_drift(make, 100_000)


def test_drift_check_sees_added_differences() -> None:
    with pytest.raises(AssertionError):
        check_drift(AddsDifferences, 2000)

"""Stratified draws: one in each segment of the priorities' sum, and in proportion, too."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from rainbow_iqn_apex.memory.segment_tree import Drawn, SegmentTree
from tests.memory.trees import Make, Tree, each_host_tree, each_tree, filled, some_priorities


def check_stratified(draw: Callable[[Tree, int], Drawn], make: Make = SegmentTree, device: str = "cpu") -> None:
    """Exactly one draw in each segment, with its true probability, in leaves of equal and of unequal priority."""
    tree = filled(np.ones(1000), make, device=device)
    for _ in range(5):
        indices, probabilities = draw(tree, 1000)
        np.testing.assert_array_equal(indices.cpu(), np.arange(1000))
        np.testing.assert_allclose(probabilities.cpu(), np.full(1000, 1e-3), rtol=1e-12)
    priorities = some_priorities(500, 1)
    tree = filled(priorities, make, device=device)
    ends = priorities.cumsum()
    for batch_size in (1, 2, 32, 513):
        found, chances = (tensor.cpu().numpy() for tensor in draw(tree, batch_size))
        segment = ends[-1] / batch_size
        starts = np.arange(batch_size) * segment
        assert (ends[found] > starts - 1e-9).all()
        assert (ends[found] - priorities[found] < starts + segment + 1e-9).all()
        np.testing.assert_allclose(chances, priorities[found] / priorities.sum(), rtol=1e-12)


@each_tree
def test_stratified_draws_once_in_each_segment(make: Make, device: str) -> None:
    generator = torch.Generator(device).manual_seed(0)
    check_stratified(lambda tree, size: tree.stratified(size, generator), make, device)


def test_stratified_check_sees_plain_draws() -> None:
    def plain(tree: Tree, size: int) -> Drawn:
        indices = tree.sample(torch.rand(size, dtype=torch.float64) * tree.total)
        return Drawn(indices, tree.get(indices) / tree.total)

    with pytest.raises(AssertionError):
        check_stratified(plain)


@each_host_tree
def test_stratified_draws_are_in_proportion_too(make: Make) -> None:
    priorities = some_priorities(129, 2)
    tree, generator = filled(priorities, make), torch.Generator().manual_seed(1)
    draws = torch.cat([tree.stratified(32, generator).indices for _ in range(1500)])
    counts, expected = draws.bincount(minlength=129).numpy(), len(draws) * priorities / priorities.sum()
    assert chisquare(counts[priorities > 0], expected[priorities > 0]).pvalue > 1e-3


@each_host_tree
def test_stratified_draws_are_repeatable(make: Make) -> None:
    tree = filled(some_priorities(500, 3), make)
    first, again = (tree.stratified(32, torch.Generator().manual_seed(5)).indices for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, tree.stratified(32).indices)

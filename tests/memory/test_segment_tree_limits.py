"""What the segment tree refuses and what it does not, and importance weights."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.memory.fast.binary_tree import BinaryTree
from rainbow_iqn_apex.memory.segment_tree import SegmentTree, importance_weights
from tests.ground_truth import priorities as truth
from tests.memory.trees import Make, Tree, binary, each_host_tree, filled
from tests.memory.valid import check_valid


@pytest.mark.parametrize("bad", [-1e-9, math.nan, math.inf, -math.inf])
def test_bad_priorities_are_refused_and_nothing_is_written(bad: float) -> None:
    tree = filled(np.ones(200), binary)
    with pytest.raises(ValueError, match="finite"):
        tree.set(torch.tensor([3, 5, 7]), torch.tensor([2.0, bad, 4.0]))
    assert tree.get(torch.arange(200)).tolist() == [1] * 200
    assert tree.total.item() == 200


@pytest.mark.parametrize("bad", [-1, 200, 255])
def test_leaves_that_do_not_exist_are_refused(bad: int) -> None:
    tree = filled(np.ones(200), binary)
    with pytest.raises(IndexError):
        tree.set(torch.tensor([3, bad]), torch.tensor([2.0, 2.0]))
    with pytest.raises(IndexError):
        tree.get(torch.tensor([bad]))
    assert tree.get(torch.arange(200)).tolist() == [1] * 200


@each_host_tree
def test_wrong_shapes_are_refused(make: Make) -> None:
    tree = filled(np.ones(200), make)
    with pytest.raises(ValueError, match=r"\(3,\).*\(1,\)"):
        tree.set(torch.arange(3), torch.ones(1))
    with pytest.raises(ValueError, match=r"\(3, 1\)"):
        tree.set(torch.zeros(3, 1, dtype=torch.int64), torch.ones(3, 1))


def test_an_empty_tree_is_not_sampled() -> None:
    tree = BinaryTree(300)
    with pytest.raises(RunError, match="nothing to sample"):
        tree.sample(torch.zeros(3))
    with pytest.raises(RunError, match="nothing to sample"):
        tree.stratified(3)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_draws_of_a_wide_tree_stay_inside_and_check_valid_sees_why(bad: float) -> None:
    tree = SegmentTree(300)
    tree.set(torch.tensor([7, 290]), torch.full((2,), bad))
    indices = tree.stratified(500).indices
    assert indices.min() >= 0
    assert indices.max() < 300
    if bad != 0:
        with pytest.raises(ValueError, match="a priority is"):
            check_valid(tree)


@pytest.mark.parametrize(
    ("make", "damage", "said"),
    [
        (SegmentTree, lambda tree: tree._sums[0][-1:].mul_(1 + 1e-12), "level 0"),
        (SegmentTree, lambda tree: tree._sums[1][-1:].mul_(1 + 1e-12), "level 1"),
        (SegmentTree, lambda tree: tree._sums[2][-1:].mul_(1 + 1e-12), "level 2"),
        (SegmentTree, lambda tree: tree._levels[-1][-1, -1:].fill_(1), "beyond the capacity"),
        (binary, lambda tree: tree._nodes[5:6].fill(3), "node 2"),
        (binary, lambda tree: tree._nodes[-1:].fill(1), "beyond the capacity"),
        (binary, lambda tree: tree._leaves[:1].fill(math.nan), "a priority is"),
    ],
)
def test_check_valid_sees_damage(make: Make, damage: Callable[[Tree], object], said: str) -> None:
    tree = filled(np.ones(30_000), make)
    damage(tree)
    with pytest.raises(ValueError, match=said):
        check_valid(tree)


@each_host_tree
def test_a_mask_leaves_alone_what_it_hides(make: Make) -> None:
    tree = filled(np.arange(200.0), make)
    tree.set(torch.tensor([3, 5, 7]), torch.tensor([30.0, 50.0, 70.0]), where=torch.tensor([True, False, True]))
    assert tree.get(torch.tensor([3, 5, 7])).tolist() == [30, 5, 70]
    check_valid(tree)


@each_host_tree
def test_no_update_changes_nothing(make: Make) -> None:
    tree = filled(np.ones(200), make)
    tree.set(torch.empty(0, dtype=torch.int64), torch.empty(0))
    assert tree.total.item() == 200


@each_host_tree
@pytest.mark.parametrize("count", [1000, 20_000])
def test_the_last_of_equal_indices_wins(make: Make, count: int) -> None:
    tree, rng = make(50), np.random.default_rng(count)
    indices = rng.integers(0, 50, count)
    expected = np.zeros(50)
    expected[indices] = np.arange(count)
    tree.set(torch.from_numpy(indices), torch.arange(count))
    np.testing.assert_array_equal(tree.get(torch.arange(50)), expected)
    check_valid(tree)


@each_host_tree
def test_a_total_is_not_changed_by_later_updates(make: Make) -> None:
    tree = filled(np.ones(200), make)
    total = tree.total
    tree.set(torch.tensor([0]), torch.tensor([5.0]))
    assert (total.item(), tree.total.item()) == (200, 204)
    assert total.dim() == 0


@each_host_tree
def test_priorities_may_come_with_a_graph(make: Make) -> None:
    tree = make(5)
    tree.set(torch.tensor([1]), torch.ones(1, requires_grad=True) * 2)
    assert not tree.total.requires_grad


# Importance weights


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_importance_weights_agree_with_the_paper(beta: float, dtype: torch.dtype) -> None:
    probabilities = np.random.default_rng(0).uniform(1e-7, 1e-2, 33)
    found = importance_weights(torch.from_numpy(probabilities).to(dtype), beta)
    expected = truth.importance_weights(probabilities, 1_000_000, beta)
    np.testing.assert_allclose(found, expected, rtol=1e-10 if dtype == torch.float64 else 1e-5)
    assert found.dtype == dtype
    assert found.max() == 1
    with_a_tensor = importance_weights(torch.from_numpy(probabilities).to(dtype), torch.tensor(beta))
    np.testing.assert_allclose(with_a_tensor, found, rtol=1e-6)

"""Both kinds of trees for the tests, on each device that they run on."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from rainbow_iqn_apex.memory.fast.binary_tree import BinaryTree
from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.memory.segment_tree import SegmentTree
from tests.memory.valid import check_valid

Tree = SegmentTree | BinaryTree
Make = Callable[..., Tree]
GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def binary(capacity: int, device: str = "cpu", fan_out: int = 2) -> BinaryTree:
    """Made as a SegmentTree is made."""
    assert device == "cpu" and fan_out > 0
    return BinaryTree(capacity)


each_tree = pytest.mark.parametrize(
    ("make", "device"),
    [
        pytest.param(SegmentTree, "cpu", id="wide"),
        pytest.param(binary, "cpu", id="binary"),
        pytest.param(SegmentTree, "cuda", id="gpu", marks=GPU),
    ],
)
each_host_tree = pytest.mark.parametrize("make", [SegmentTree, binary], ids=["wide", "binary"])


def filled(priorities: Array, make: Make = SegmentTree, **options: object) -> Tree:
    tree = make(len(priorities), **options)
    device = tree.total.device
    tree.set(torch.arange(len(priorities), device=device), torch.from_numpy(priorities).to(device))
    check_valid(tree)
    return tree


def find(tree: Tree, values: Array) -> Array:
    return tree.sample(torch.from_numpy(values).to(tree.total.device)).cpu().numpy()


def some_priorities(size: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    priorities = rng.uniform(0.2, 2, size) ** 2
    if size > 2:
        priorities[rng.random(size) < 0.3] = 0
        priorities[[0, -1]] = 0
    return priorities

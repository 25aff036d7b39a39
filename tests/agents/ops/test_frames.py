from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex.agents.ops import FIRST
from rainbow_iqn_apex.agents.ops.frames import push_frame, stack_at
from rainbow_iqn_apex.memory.rows import DTYPES
from tests.ground_truth import frames as truth
from tests.ground_truth.episodes import random_stream

Push = Callable[[Tensor, Tensor, Tensor], Tensor]
StackAt = Callable[[Tensor, Tensor, Tensor, int], Tensor]


def check_push(push: Push, size: int, dtype: torch.dtype = torch.uint8) -> None:
    """Push 40 rows of 30 environments, and compare every stack with that of the episode."""
    rng = np.random.default_rng(size)
    streams = [random_stream(rng, 40, (2, 3)) for _ in range(30)]
    stack = torch.zeros((30, size, 2, 3), dtype=dtype)
    for t in range(40):
        obs = torch.from_numpy(np.stack([stream.obs[t] for stream in streams])).to(dtype)
        first = torch.tensor([stream.step_type[t] == FIRST for stream in streams])
        before = stack.clone()
        pushed = push(stack, obs, first)
        np.testing.assert_array_equal(stack, before)  # not changed in place
        assert pushed.dtype == dtype
        np.testing.assert_array_equal(pushed, np.stack([truth.stack(*s.places[t], size) for s in streams]))
        stack = pushed


def check_stack_at(function: StackAt, rows: int, size: int) -> None:
    """Stack at any row of 2000 windows cut anywhere, and compare with the stacks of the episodes."""
    rng = np.random.default_rng([rows, size])
    starts, index = rng.integers(0, 30, 2000), rng.integers(0, rows, 2000)
    streams = [random_stream(rng, start + rows, (2, 3)) for start in starts]
    obs = np.stack([s.obs[start:] for s, start in zip(streams, starts, strict=True)], 1)  # [T, B, 2, 3]
    step_type = np.stack([s.step_type[start:] for s, start in zip(streams, starts, strict=True)], 1)  # [T, B]
    expected = [
        truth.stack(*stream.places[int(start + i)], size, known=i + 1)
        for stream, start, i in zip(streams, starts, index, strict=True)
    ]
    found = function(torch.from_numpy(obs), torch.from_numpy(step_type), torch.from_numpy(index), size)
    assert found.dtype == torch.uint8
    np.testing.assert_array_equal(found, np.stack(expected))


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("dtype", [getattr(torch, name) for name in DTYPES])
def test_pushed_stacks_are_those_of_the_episodes(size: int, dtype: torch.dtype) -> None:
    check_push(push_frame, size, dtype)


def test_push_check_sees_frames_from_before_a_reset() -> None:
    def mutant(stack: Tensor, obs: Tensor, first: Tensor) -> Tensor:
        return push_frame(stack, obs, torch.zeros_like(first))

    with pytest.raises(AssertionError):
        check_push(mutant, 4)


@pytest.mark.parametrize(("rows", "size"), [(7, 4), (4, 4), (2, 3), (9, 1), (12, 5)])
def test_stacks_of_windows_are_those_of_the_episodes(rows: int, size: int) -> None:
    check_stack_at(stack_at, rows, size)


def from_before_a_reset(obs: Tensor, step_type: Tensor, index: Tensor, size: int) -> Tensor:
    return stack_at(obs, torch.ones_like(step_type), index, size)


def one_row_off(obs: Tensor, step_type: Tensor, index: Tensor, size: int) -> Tensor:
    return stack_at(obs, step_type, (index - 1).clamp(min=0), size)


@pytest.mark.parametrize("mutant", [from_before_a_reset, one_row_off])
def test_the_check_of_windows_notices(mutant: StackAt) -> None:
    with pytest.raises(AssertionError):
        check_stack_at(mutant, 7, 4)


def test_a_bad_old_frame_does_not_pass_a_reset() -> None:
    bad = torch.full((3, 4, 2), float("nan"))
    pushed = push_frame(bad, torch.ones(3, 2), torch.ones(3, dtype=torch.bool))
    np.testing.assert_array_equal(pushed.sum(1), np.ones((3, 2)))
    step_type = torch.tensor([[1], [2], [FIRST], [1]], dtype=torch.uint8)
    obs = torch.tensor([[torch.nan], [torch.inf], [5.0], [6.0]])
    assert stack_at(obs, step_type, torch.tensor([3]), 4).tolist() == [[0, 0, 5, 6]]


@pytest.mark.parametrize("index", [-1, 7])
def test_rows_outside_the_window_are_refused(index: int) -> None:
    with pytest.raises(IndexError):
        stack_at(torch.ones(7, 10, 3), torch.ones((7, 10), dtype=torch.uint8), torch.full((10,), index), 4)


def test_dtypes_are_not_mixed() -> None:
    stack, first = torch.zeros((10, 4, 3), dtype=torch.uint8), torch.zeros(10, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"uint8.*float32"):
        push_frame(stack, torch.zeros(10, 3), first)
    with pytest.raises(ValueError, match=r"first torch\.uint8"):
        push_frame(stack, stack[:, 0], first.to(torch.uint8))
    with pytest.raises(ValueError, match="at least one frame"):
        stack_at(torch.ones(7, 10), torch.ones((7, 10), dtype=torch.uint8), torch.zeros(10).long(), 0)

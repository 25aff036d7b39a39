from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rainbow_iqn_apex.memory.chunk import ChunkSpec, check_chunk
from rainbow_iqn_apex.memory.rows import StepType
from rainbow_iqn_apex.memory.wire import Tag, decode, encode
from tests.refusals.chunks import FIELDS, GOOD, SPEC

Numbers = tuple[int, int, int, int, int, int]


@pytest.mark.parametrize(
    ("numbers", "prefix", "window", "samples", "sample_window"),
    [  # the table of DESIGN.md
        ((4, 0, 64, 3, 64, 1), 3, 70, 64, 7),
        ((4, 40, 80, 5, 40, 80), 43, 128, 1, 128),
        ((4, 0, 20, 1, 20, 20), 3, 24, 1, 24),
        ((1, 0, 64, 1, 64, 1), 0, 65, 64, 2),
    ],
)
def test_sizes(numbers: Numbers, prefix: int, window: int, samples: int, sample_window: int) -> None:
    spec = ChunkSpec(*numbers)
    assert (spec.prefix, spec.window, spec.samples, spec.sample_window) == (prefix, window, samples, sample_window)


@pytest.mark.parametrize("position", range(6))
def test_each_number_has_a_least_value(position: int) -> None:
    numbers: list[Any] = [1, 0, 1, 0, 1, 1]
    ChunkSpec(*numbers)
    numbers[position] -= 1
    with pytest.raises(ValueError, match="no such shape"):
        ChunkSpec(*numbers)


@pytest.mark.parametrize("numbers", [(1, 0, 4, 0, 5, 1), (1, 0, 4, 0, 4, 3), (1, 0, 4, 0, 4, 8)])
def test_stride_and_sample_must_fit(numbers: Numbers) -> None:
    with pytest.raises(ValueError, match="must"):
        ChunkSpec(*numbers)


def test_a_chunk_with_a_recurrent_state_is_one_sample() -> None:
    with pytest.raises(ValueError, match="with a recurrent state is one sample, not 2"):
        replace(SPEC, sample_length=2)


@pytest.mark.parametrize(("sample", "expected"), [(1, [0, 1, 0, 0, 1, 1]), (2, [1, 0, 1]), (3, [1, 1]), (6, [1])])
def test_samples_of_last_rows_alone_are_not_learnable(sample: int, expected: list[int]) -> None:
    spec = ChunkSpec(3, 1, 6, 2, 6, sample)
    middle = [StepType.LAST, StepType.FIRST, StepType.LAST, StepType.LAST, StepType.MID, StepType.FIRST]
    for outside in (StepType.MID, StepType.LAST):  # neither the prefix nor the bootstrap rows matters
        step_type = np.array([outside] * 3 + middle + [outside] * 2, np.uint8)
        assert spec.learnable(step_type).tolist() == [bool(x) for x in expected]


def test_read_only_chunks_are_accepted() -> None:
    check_chunk(replace(GOOD, rows=decode(encode(Tag.CHUNK, {}, GOOD.rows)).arrays), SPEC, FIELDS)

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest

from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.rows import StepType
from tests.refusals.chunks import SPEC

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


LEAST = ChunkSpec(1, 0, 1, 0, 1, 1)


@pytest.mark.parametrize(
    ("spec", "changes", "told"),
    [
        *((LEAST, {name: getattr(LEAST, name) - 1}, "no such shape") for name in [*asdict(LEAST)][:6]),
        *((replace(LEAST, length=4), changes, "must") for changes in (
            {"period": 5}, {"sample_length": 3}, {"sample_length": 8},
        )),
        (SPEC, {"sample_length": 2}, "with a recurrent state is one sample, not 2"),
    ],
)  # fmt: skip
def test_numbers_that_do_not_fit_are_refused(spec: ChunkSpec, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        replace(spec, **changes)


@pytest.mark.parametrize(("sample", "expected"), [(1, [0, 1, 0, 0, 1, 1]), (2, [1, 0, 1]), (3, [1, 1]), (6, [1])])
def test_samples_of_last_rows_alone_are_not_learnable(sample: int, expected: list[int]) -> None:
    spec = ChunkSpec(3, 1, 6, 2, 6, sample)
    middle = [StepType.LAST, StepType.FIRST, StepType.LAST, StepType.LAST, StepType.MID, StepType.FIRST]
    for outside in (StepType.MID, StepType.LAST):  # neither the prefix nor the bootstrap rows matters
        step_type = np.array([outside] * 3 + middle + [outside] * 2, np.uint8)
        assert spec.learnable(step_type).tolist() == [bool(x) for x in expected]

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rainbow_iqn_apex.memory.chunk import Chunk, ChunkSpec, check_chunk
from rainbow_iqn_apex.memory.environment_spec import Field
from rainbow_iqn_apex.memory.rows import Array, Arrays, StepType
from rainbow_iqn_apex.memory.wire import Tag, decode, encode
from tests.specs import discrete

SPEC = ChunkSpec(3, 1, 4, 2, 2, 4, extras=(("q", Field((5,), "float32")),), state=(("h", Field((7,), "float32")),))
FIELDS = SPEC.row_fields(discrete((2, 3), "uint8", 18))
Numbers = tuple[int, int, int, int, int, int]


def good_chunk() -> Chunk:
    rows = {name: np.zeros((SPEC.window, *field.shape), field.dtype) for name, field in FIELDS.items()}
    return Chunk(0, 0, rows, {"h": np.zeros(7, np.float32)}, np.ones(SPEC.samples, np.float32))


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


def test_priorities_are_there_exactly_where_the_spec_wants_them() -> None:
    plain, chunk = replace(SPEC, prioritised=False), good_chunk()
    check_chunk(replace(chunk, priorities=None), plain, FIELDS)
    with pytest.raises(ValueError, match="chunk has unwanted priorities"):
        check_chunk(chunk, plain, FIELDS)
    with pytest.raises(ValueError, match="chunk has no priorities"):
        check_chunk(replace(chunk, priorities=None), SPEC, FIELDS)


@pytest.mark.parametrize(("sample", "expected"), [(1, [0, 1, 0, 0, 1, 1]), (2, [1, 0, 1]), (3, [1, 1]), (6, [1])])
def test_samples_of_last_rows_alone_are_not_learnable(sample: int, expected: list[int]) -> None:
    spec = ChunkSpec(3, 1, 6, 2, 6, sample)
    middle = [StepType.LAST, StepType.FIRST, StepType.LAST, StepType.LAST, StepType.MID, StepType.FIRST]
    for outside in (StepType.MID, StepType.LAST):  # neither the prefix nor the bootstrap rows matters
        step_type = np.array([outside] * 3 + middle + [outside] * 2, np.uint8)
        assert spec.learnable(step_type).tolist() == [bool(x) for x in expected]


def test_a_good_chunk_is_accepted() -> None:
    check_chunk(good_chunk(), SPEC, FIELDS)


def rows_with(name: str, array: Any) -> Callable[[Chunk], Chunk]:
    return lambda chunk: replace(chunk, rows=chunk.rows | {name: array})


def without(arrays: Arrays, name: str) -> Arrays:
    return {k: v for k, v in arrays.items() if k != name}


def nan_at(name: str) -> Callable[[Chunk], Chunk]:
    return rows_with(name, np.full(SPEC.window, np.nan, np.float32))


def priorities_with(change: Callable[[Array], Array]) -> Callable[[Chunk], Chunk]:
    def changed(chunk: Chunk) -> Chunk:
        assert chunk.priorities is not None
        return replace(chunk, priorities=change(chunk.priorities))

    return changed


BAD: dict[str, Callable[[Chunk], Chunk]] = {
    "row missing": lambda c: replace(c, rows=c.rows | {"obs": c.rows["obs"][1:]}),
    "other frames": rows_with("obs", np.zeros((SPEC.window, 3, 2), np.uint8)),
    "other dtype": rows_with("action", np.zeros(SPEC.window, np.int64)),
    "array missing": lambda c: replace(c, rows=without(c.rows, "extras.q")),
    "array too many": rows_with("extras.z", np.zeros(SPEC.window, np.float32)),
    "no state": lambda c: replace(c, state={}),
    "other state": lambda c: replace(c, state={"h": np.zeros(8, np.float32)}),
    "unknown step type": rows_with("step_type", np.full(SPEC.window, 3, np.uint8)),
    "no priorities": lambda c: replace(c, priorities=None),
    "priority missing": priorities_with(lambda p: p[1:]),
    "priorities in a column": priorities_with(lambda p: p[:, None]),
    "priority below 0": priorities_with(lambda p: -p),
    "priority NaN": priorities_with(lambda p: p * np.nan),
    "priority infinite": priorities_with(lambda p: p * np.inf),
    "priority of a LAST row": lambda c: replace(c, rows=c.rows | {"step_type": np.full(SPEC.window, 2, np.uint8)}),
    "reward NaN": nan_at("reward"),
    "discount NaN": nan_at("discount"),
    "output of no network": rows_with("extras.q", np.full((SPEC.window, 5), -3e38, np.float32)),
    "reward of no game": rows_with("reward", np.full(SPEC.window, 2e9, np.float32)),
    "state of no network": lambda c: replace(c, state={"h": np.full(7, -2e9, np.float32)}),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_chunks_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="chunk"):
        check_chunk(BAD[name](good_chunk()), SPEC, FIELDS)


def test_read_only_chunks_are_accepted() -> None:
    chunk = good_chunk()
    check_chunk(replace(chunk, rows=decode(encode(Tag.CHUNK, {}, chunk.rows)).arrays), SPEC, FIELDS)

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rainbow_iqn_apex.memory import assembler as module
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.assembler import Assembler
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import Field
from rainbow_iqn_apex.memory.rows import Array, Arrays, StepType
from tests.conftest import Moment, random_rows, window_of

OUT = (("q", Field((2,), "float32")),)
STATE = (("memory", Field((5,), "float32")),)
SPECS = {
    "rainbow": ChunkSpec(4, 0, 64, 3, 64, 1),
    "rainbow, small": ChunkSpec(4, 0, 5, 3, 5, 1),
    "r2d2": ChunkSpec(4, 5, 10, 2, 5, 10, state=STATE),
    "r2d2, prefixes of several periods": ChunkSpec(3, 7, 6, 4, 3, 6, state=STATE),
    "on-policy": ChunkSpec(4, 0, 7, 1, 7, 7, extras=OUT),
    "sac": ChunkSpec(1, 0, 6, 1, 6, 1),
    "sac, no bootstrap rows": ChunkSpec(1, 0, 6, 0, 6, 2, OUT),
    "overlapping": ChunkSpec(2, 1, 9, 2, 3, 1, OUT),
}
Make = Callable[[ChunkSpec], Assembler]


def priorities_of(spec: ChunkSpec) -> Callable[[Arrays], Array]:
    """Above 0 everywhere, and different for each sample of each stream."""

    def priorities(rows: Arrays) -> Array:
        assert set(rows) == {"obs", "step_type", "reward", "discount", "action", "extras.q"}
        middle = np.abs(rows["extras.q"][spec.prefix : spec.prefix + spec.length, 1])  # [length]
        return np.asarray(1 + middle.reshape(spec.samples, spec.sample_length).sum(1))

    return priorities


def make_assembler(spec: ChunkSpec) -> Assembler:
    return Assembler(spec, 3, priorities_of(spec))


def assert_equal(found: Arrays, expected: Arrays) -> None:
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert (found[name].shape, found[name].dtype) == (array.shape, array.dtype), name
        np.testing.assert_array_equal(found[name], array, name)


def check_stream(spec: ChunkSpec, seed: int, rows: int = 60, make: Make = make_assembler) -> None:
    """All chunks of a random stream against the stream itself."""
    stream = random_rows(np.random.default_rng(seed), rows, 1)
    assembler = make(spec)
    chunks = 0
    for t, (row, action, extras, state) in enumerate(stream):
        assembler.version = t
        chunk = assembler.add(row, action, extras, state)
        begin = chunks * spec.period  # the chunk's first learnable row
        assert (chunk is not None) == (t == begin + spec.length + spec.bootstrap_rows - 1)
        if chunk:
            assert (chunk.env, chunk.version) == (3, t)
            check_chunk(chunk, spec, window_of(stream, begin - spec.prefix, spec))
            chunks += 1


def check_chunk(chunk: Chunk, spec: ChunkSpec, window: Arrays) -> None:
    sent = {"obs", "step_type", "reward", "discount", "action", *(f"extras.{name}" for name, _ in spec.extras)}
    assert_equal(chunk.rows, {name: array for name, array in window.items() if name in sent})
    assert_equal(chunk.state, {name: window[f"state.{name}"][spec.stack - 1] for name, _ in spec.state})
    known = {name: array for name, array in window.items() if not name.startswith("state.")}
    expected = priorities_of(spec)(known)
    for leaf in range(spec.samples):
        first = spec.prefix + leaf * spec.sample_length
        if all(step_type == StepType.LAST for step_type in window["step_type"][first : first + spec.sample_length]):
            expected[leaf] = 0
    assert chunk.priorities is not None and chunk.priorities.dtype == np.float32
    np.testing.assert_array_equal(chunk.priorities, expected.astype(np.float32))


@pytest.mark.parametrize("name", SPECS)
def test_chunks_are_windows_of_the_stream(name: str) -> None:
    for seed in range(0, 175, 7):
        check_stream(SPECS[name], seed, rows=20 + seed % 40 if SPECS[name].length < 64 else 200)


@pytest.mark.parametrize("name", SPECS)
def test_a_successor_goes_on_identically(name: str) -> None:
    spec = SPECS[name]
    for seed in range(40):
        rng = np.random.default_rng(seed)
        stream = random_rows(rng, 2 * spec.window, 1)
        assembler, successor = make_assembler(spec), make_assembler(spec)
        moment = int(rng.integers(len(stream)))  # 0 among them: nothing was added yet
        for row in stream[:moment]:
            assembler.add(*row)
        assert len(assembler.snapshot().get("state.memory", ())) <= -(-spec.window // spec.period), "of no other rows"
        packet = wire.encode(wire.Tag.STATE, {}, assembler.snapshot())
        successor.restore(wire.decode(packet).arrays)
        check_same_future(assembler, successor, stream[moment:])


@pytest.mark.parametrize(
    "wrong",
    [
        {"state.memory": None},
        {"state.memory": np.zeros((3, 3), np.float32)},
        {"state.memory": np.zeros((1, 3), np.float64)},
        {"state.memory": np.zeros((), np.float32)},
        {"state.other": np.zeros((1, 3), np.float32)},
    ],
)
def test_states_of_another_kind_are_refused(wrong: dict[str, Array | None]) -> None:
    spec = SPECS["r2d2"]
    assembler = make_assembler(spec)
    for row in random_rows(np.random.default_rng(1), spec.stack + 1, 1):
        assembler.add(*row)
    saved = {name: array for name, array in (assembler.snapshot() | wrong).items() if array is not None}
    with pytest.raises(ValueError, match="the rows of an unfinished window are of another kind"):
        make_assembler(spec).restore(saved)
    make_assembler(spec).restore(assembler.snapshot())


def check_same_future(one: Assembler, other: Assembler, stream: list[Moment]) -> None:
    for moment in stream:
        a, b = one.add(*moment), other.add(*moment)
        assert (a is None) == (b is None)
        if a and b:
            assert_equal(a.rows, b.rows)
            assert_equal(a.state, b.state)
            np.testing.assert_array_equal(a.priorities, b.priorities)
    assert_equal(one.snapshot(), other.snapshot())


def test_priorities_may_be_nonsense_where_nothing_is_learned() -> None:
    spec = SPECS["rainbow, small"]
    assembler = Assembler(spec, 0, lambda rows: np.where(rows["step_type"][3:8] == StepType.LAST, np.nan, 2.0))
    chunks = [c for row in random_rows(np.random.default_rng(1), 50, 1) if (c := assembler.add(*row))]
    assert set(np.concatenate([chunk.priorities for chunk in chunks])) == {0.0, 2.0}


# --- what the checks above must notice ---


class ForgetsPadding(Assembler):
    def _move_on(self) -> None:
        self._padding = 0
        del self._rows[: self.spec.period]


class StridesTooFar(Assembler):
    def _move_on(self) -> None:
        super()._move_on()
        del self._rows[:1]


class SharesPriorities(Assembler):
    def _chunk(self) -> Chunk:
        chunk = super()._chunk()
        priorities: Any = chunk.priorities
        priorities[:] = priorities.max()
        return chunk


class StateOfTheWrongRow(Assembler):
    def _chunk(self) -> Chunk:
        chunk = super()._chunk()
        return Chunk(chunk.env, chunk.version, chunk.rows, self._states[-1], chunk.priorities)


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (ForgetsPadding, "r2d2"),
        (StridesTooFar, "rainbow, small"),
        (SharesPriorities, "rainbow, small"),
        (StateOfTheWrongRow, "r2d2"),
    ],
)
def test_the_stream_check_notices(broken: type[Assembler], name: str) -> None:
    with pytest.raises(AssertionError):
        for seed in range(5):
            check_stream(SPECS[name], seed, make=lambda spec: broken(spec, 3, priorities_of(spec)))


def test_the_stream_check_notices_learnable_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    pad = module._pad
    monkeypatch.setattr(
        module, "_pad", lambda name, array, count: np.roll(pad(name, array, count), name == "step_type")
    )
    with pytest.raises(AssertionError):
        check_stream(SPECS["rainbow, small"], 0)

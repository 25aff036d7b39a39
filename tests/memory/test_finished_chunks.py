"""A chunk that ends with a round, before it is full: nothing is lost, doubled, or learned from without an action."""

import numpy as np
import pytest

from rainbow_iqn_apex.memory.assembler import Assembler
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import Field
from rainbow_iqn_apex.memory.rows import Row, StepType
from tests.conftest import Moment, random_rows
from tests.memory.test_assembler import check_same_future

MEMORY = (("memory", Field((5,), "float32")),)
SPECS = {
    "one frame": ChunkSpec(1, 0, 6, 1, 6, 6, prioritised=False),
    "burn-in without a state": ChunkSpec(2, 3, 4, 1, 4, 4, prioritised=False),
    "stacks and a state": ChunkSpec(3, 0, 5, 1, 5, 5, (("q", Field((2,), "float32")),), MEMORY, prioritised=False),
}


def numbers(chunk: Chunk) -> list[int]:
    """Number of each row of a chunk in its stream; 0 at padding."""
    return [int(frame[0, 1]) * 256 + int(frame[0, 2]) for frame in chunk.rows["obs"]]


def check(spec: ChunkSpec, seed: int, kind: type[Assembler] = Assembler) -> None:
    rng = np.random.default_rng(seed)
    stream: list[Moment] = random_rows(rng, 80, 1)
    assembler, learned = kind(spec, 0, lambda _: None), list[int]()
    for t, (row, action, extras, state) in enumerate(stream):
        if rng.random() < 0.15:  # a round ends before the action at row t is chosen
            if chunk := assembler.finish(row):
                learned += check_finished(chunk, spec, stream, t)
            assert assembler.finish(row) is None, "a second time there is nothing left"
        if chunk := assembler.add(row, action, extras, state):
            found = numbers(chunk)[spec.prefix : spec.prefix + spec.length]
            assert chunk.state.keys() == {name for name, _ in spec.state}
            learned += [n for n in found if stream[n][0].step_type != StepType.LAST]
    last = assembler.finish(stream[-1][0]._replace(step_type=StepType.MID))
    learned += check_finished(last, spec, stream, len(stream)) if last else []
    wanted = [t for t, (row, *_) in enumerate(stream) if row.step_type != StepType.LAST]
    assert learned == wanted, "every row with an action is learned from once, in its order"


def check_finished(chunk: Chunk, spec: ChunkSpec, stream: list[Moment], t: int) -> list[int]:
    """Check a chunk that ends before row t, and return the rows that it lets be learned from."""
    rows = chunk.rows
    middle = [*rows["step_type"][spec.prefix : spec.prefix + spec.length]]
    here = numbers(chunk)[spec.prefix : spec.prefix + spec.length]
    learned = [n for n, kind in zip(here, middle, strict=True) if kind != StepType.LAST]
    assert all(n < t for n in learned)
    place = numbers(chunk).index(t) if t < len(stream) and t in numbers(chunk) else None
    if place is not None:  # the row that the round has ended before
        row = stream[t][0]
        assert rows["step_type"][place] == StepType.LAST, "bootstrapped from, like a truncated episode's end"
        assert rows["reward"][place] == np.float32(row.reward) and rows["discount"][place] == row.discount
        assert (rows["step_type"][place:] == StepType.LAST).all()
    for name, _ in spec.state:
        first = numbers(chunk)[spec.stack - 1]
        np.testing.assert_array_equal(chunk.state[name], stream[first][3][name])
    return learned


@pytest.mark.parametrize("name", SPECS)
def test_every_row_with_an_action_is_learned_from_once(name: str) -> None:
    for seed in range(60):
        check(SPECS[name], seed)


class LearnsFromTheRowWithoutAction(Assembler):
    def finish(self, row: Row) -> Chunk | None:
        chunk = super().finish(row)
        if chunk:
            rows = dict(chunk.rows)
            last = rows["step_type"] == StepType.LAST
            rows["step_type"] = np.where(last, StepType.MID, rows["step_type"]).astype(np.uint8)
            chunk = Chunk(chunk.env, chunk.version, rows, chunk.state, chunk.priorities)
        return chunk


class BeginsWithoutItsPrefix(Assembler):
    def finish(self, row: Row) -> Chunk | None:
        chunk = super().finish(row)
        self._rows = self._rows[1:]
        return chunk


@pytest.mark.parametrize("broken", [LearnsFromTheRowWithoutAction, BeginsWithoutItsPrefix])
def test_the_check_notices(broken: type[Assembler]) -> None:
    with pytest.raises((AssertionError, IndexError)):
        for seed in range(60):
            check(SPECS["stacks and a state"], seed, broken)


@pytest.mark.parametrize("name", SPECS)
def test_a_successor_goes_on_identically_after_a_round(name: str) -> None:
    stream = random_rows(np.random.default_rng(5), 60, 1)
    assembler, successor = (Assembler(SPECS[name], 0, lambda _: None) for _ in range(2))
    for row in stream[:23]:
        assembler.add(*row)
    assembler.finish(stream[23][0])
    successor.restore(assembler.snapshot())
    check_same_future(assembler, successor, stream[23:])

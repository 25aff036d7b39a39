"""What becomes of observations and actions, over random spaces: nothing is lost, and nothing lands elsewhere."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from benchmarks.learning import random_action
from rainbow_iqn_apex.environments.gymnasium.spaces import Actions, actions_of, flaw, view_of
from rainbow_iqn_apex.environments.replayed import ReplayedEnvironment
from rainbow_iqn_apex.memory.environment_spec import (
    ActionSpec,
    Box,
    Discrete,
    EnvironmentSpec,
    Field,
    MultiDiscrete,
    unpack,
)
from rainbow_iqn_apex.memory.rows import Row, StepType

SIZES = array_shapes(max_dims=3, max_side=4)
IMAGE = spaces.Box(0, 255, (16, 17, 3), np.uint8)


def counted(draw: Any, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    return (draw(arrays(np.int64, shape, elements=st.integers(*ends))) for ends in ((1, 5), (-9, 9)))


@st.composite
def choices(draw: Any) -> spaces.MultiDiscrete:
    counts, start = counted(draw, draw(SIZES))
    return spaces.MultiDiscrete(counts, start=start)


@st.composite
def boxes(draw: Any) -> spaces.Box:
    """Bounded boxes of both types of floats, with bounds of every kind: equal, tiny, huge, around zero or beside it."""
    shape, dtype = draw(SIZES), draw(st.sampled_from([np.float32, np.float64]))
    ends = [draw(arrays(dtype, shape, elements=st.floats(-(2.0**100), 2.0**100, width=32))) for _ in range(2)]
    return spaces.Box(np.minimum(*ends), np.maximum(*ends), dtype=dtype)


LEAVES = st.one_of(
    st.builds(spaces.Discrete, st.integers(1, 6), start=st.integers(-3, 3)),
    st.builds(spaces.MultiBinary, st.integers(1, 4)),
    choices(),
    boxes(),
)
NAMES = st.text("abz_", min_size=1, max_size=3)
NESTED = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(spaces.Dict),
        st.lists(inner, min_size=1, max_size=3).map(spaces.Tuple),
    ),
    max_leaves=6,
)


# --- observations ---


def numbers(space: spaces.Space[Any], value: Any) -> list[float]:
    """Write down slowly what a network gets of a space's observation."""
    if isinstance(space, spaces.Dict):
        return [number for key in sorted(space.spaces) for number in numbers(space[key], value[key])]
    if isinstance(space, spaces.Tuple):
        return [number for inner, part in zip(space.spaces, value, strict=True) for number in numbers(inner, part)]
    if isinstance(space, spaces.Discrete):
        return [float(value == space.start + n) for n in range(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        flat = zip(space.start.flat, space.nvec.flat, value.flat, strict=True)
        return [float(number == start + n) for start, count, number in flat for n in range(count)]
    return [float(np.float32(number)) for number in np.ravel(value)]


def within(space: spaces.Space[Any], value: Any, name: str) -> list[float]:
    """Follow a part's name into an observation."""
    while name:
        key, _, name = name.partition(".")
        if isinstance(space, spaces.Tuple):
            space, value = space[int(key)], value[int(key)]
        else:
            assert isinstance(space, spaces.Dict)
            space, value = space[key], value[key]
    return numbers(space, value)


@settings(max_examples=40)
@given(space=NESTED, seed=st.integers(0, 99))
def test_every_number_stands_at_its_named_place(space: spaces.Space[Any], seed: int) -> None:
    # Mutation: sort no keys, begin a part a place later, or leave `start` out of a one-hot.
    view = view_of(space)
    space.seed(seed)
    value = space.sample()
    shown = view.show(value)
    assert (shown.shape, shown.dtype.name) == view.field[:2]
    assert shown.tolist() == numbers(space, value)
    assert all(shown[start:stop].tolist() == within(space, value, name) for name, start, stop in view.parts)
    if view.parts:
        assert [0, *(part.stop for part in view.parts)] == [*(part.start for part in view.parts), len(shown)]
    assert bool(view.parts) == isinstance(space, spaces.Dict | spaces.Tuple)


@pytest.mark.parametrize(
    ("space", "dtype"),
    [
        (spaces.Box(-1, 1, (5,), np.float32), np.float32),
        (spaces.Box(-1, 1, (), np.float64), np.float32),
        (spaces.Box(0, 1, (84, 84), np.float32), np.float32),  # an image of floats
        (spaces.Box(-1, 1, (3, 7, 2), np.int8), np.float32),  # a board
        (spaces.Box(0, 1, (10, 10, 4), np.bool_), np.float32),  # type: ignore[arg-type]
        (spaces.Box(0, 10, (7, 7, 3), np.uint8), np.float32),  # symbols, too few for an image
        (spaces.Box(0, 255, (128,), np.uint8), np.uint8),  # a machine's memory
        (spaces.Box(0, 255, (3, 40, 4), np.uint8), np.uint8),
        (spaces.Box(0, 255, (20, 3, 20), np.uint8), np.uint8),
    ],
)
def test_boxes_that_are_no_images_become_one_row_of_numbers(space: spaces.Box, dtype: Any) -> None:
    space.seed(1)
    value, view = space.sample(), view_of(space)
    obs = view.show(value)
    assert obs.dtype.name == view.field.dtype == np.dtype(dtype).name
    assert np.array_equal(obs, np.asarray(value).astype(dtype).ravel())
    assert not np.shares_memory(obs, value)


@pytest.mark.parametrize(
    ("space", "images", "numbers"),
    [
        (spaces.Dict(a=spaces.Dict(camera=IMAGE, x=spaces.Discrete(3)), b=IMAGE), ["a.camera", "b"], ["a.x"]),
        (spaces.Tuple([spaces.Discrete(2), IMAGE, spaces.Box(-1, 1, (2,))]), ["1"], ["0", "2"]),
        (spaces.Dict(camera=IMAGE), ["camera"], []),
        (spaces.Dict(camera=IMAGE, mission=spaces.Text(20), x=spaces.Discrete(3)), ["camera"], ["x"]),
        (spaces.Dict(mission=spaces.Text(20), x=spaces.Discrete(3)), [], ["x"]),
        (spaces.Text(20), [], []),
    ],
)
def test_images_stand_beside_numbers(space: spaces.Space[Any], images: list[str], numbers: list[str]) -> None:
    # Mutations: an image's colours last; the numbers before the images.
    view = view_of(space)
    space.seed(1)
    value = space.sample()
    kinds = unpack(view.field, np.stack([view.show(value)] * 2))  # of two rows
    assert view.field.is_picture and [part.name for part in view.parts] == numbers
    for name, found in zip(images, kinds, strict=False):
        seen = value
        for key in name.split("."):
            seen = seen[int(key) if isinstance(seen, tuple) else key]
        assert np.array_equal(found, [np.moveaxis(seen, 2, 0)] * 2)
    if numbers:
        rest = [kind for inner, kind in zip(view.field.inner, kinds, strict=True) if inner.dtype == "float32"]
        assert len(rest) == 1 and rest[0].shape == (2, view.parts[-1].stop) and rest[0].dtype == np.float32


@pytest.mark.parametrize(
    ("space", "told"),
    [
        (spaces.Sequence(spaces.Discrete(2)), "observations must be Box, .*, not Sequence"),
        (spaces.Dict(a=spaces.Sequence(spaces.Discrete(2))), "observations must be Box, .*, not Sequence"),
        (spaces.Dict({"a.b": spaces.Discrete(2), "a": spaces.Dict(b=spaces.Discrete(3))}), "have the same name"),
        (spaces.Dict(), "observations hold no number"),
        (spaces.Box(-1, 1, (0,)), "observations hold no number"),
    ],
)
def test_what_no_network_can_get_is_refused(space: spaces.Space[Any], told: str) -> None:
    with pytest.raises(ValueError, match=told) as raised:
        view_of(space)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e300, -1.1e9])
def test_a_number_that_no_replay_takes_is_named(number: float) -> None:
    view = view_of(spaces.Dict(speed=spaces.Box(-np.inf, np.inf, (3,), np.float64), place=spaces.Discrete(2)))
    shown = view.show({"speed": np.array([1e9, number, 0]), "place": 1})
    assert flaw(shown, view.parts) == f"{np.clip(number, -4e38, 4e38):g} as number 3 of 'speed'".replace("4e+38", "inf")
    assert flaw(np.nan_to_num(shown, nan=0, posinf=1e9, neginf=-1e9).clip(-1e9, 1e9), view.parts) == ""
    assert flaw(shown[2:], ()).endswith("as number 1")


IMAGE = spaces.Box(0, 255, (84, 96, 3), np.uint8)


@pytest.mark.parametrize(
    ("space", "obs"),
    [
        (IMAGE, np.zeros((96, 84, 3), np.uint8)),
        (IMAGE, np.full((84, 96, 3), 0.5, np.float32)),
        (spaces.Box(0, 1, (4,)), np.zeros(3)),
        (spaces.Discrete(3), -1),
        (spaces.Discrete(3, start=2), 5),
        (spaces.MultiDiscrete([2, 3]), np.array([2, 0])),
        (spaces.Dict(a=spaces.Discrete(2)), {"b": 1}),
    ],
)
def test_what_is_none_of_its_space_is_not_shown(space: spaces.Space[Any], obs: Any) -> None:
    # Mutation: reshape an image, or set the bit of a neighbour.
    with pytest.raises((ValueError, LookupError)):
        view_of(space).show(obs)


# --- actions ---


def taken(actions: Actions, action: Any) -> Any:
    return actions.native(actions.read(action))


@settings(max_examples=50)
@given(space=boxes(), data=st.data())
def test_a_box_is_reached_from_bound_to_bound(space: spaces.Box, data: st.DataObject) -> None:
    # Mutation: leave out `np.where`, so that rounding keeps the sum from the upper bound.
    actions = actions_of(space)
    assert actions.spec == Box(space.low.size)
    assert np.array_equal(taken(actions, np.full(space.low.size, -1.0)), space.low)
    assert np.array_equal(taken(actions, np.full(space.low.size, 1.0)), space.high)
    finer = np.sort(data.draw(arrays(np.float32, 9, elements=st.floats(-1.25, 1.25, width=32))))
    reached = np.array([taken(actions, np.full(space.low.size, number)) for number in finer])
    assert all(space.contains(action) for action in reached)
    assert (np.diff(reached, axis=0) >= 0).all(), "more is never less"


@settings(max_examples=50)
@given(rows=st.integers(2, 3), columns=st.integers(4, 5), place=st.integers(0, 7), number=st.floats(-1, 1, width=32))
def test_each_number_moves_its_own(rows: int, columns: int, place: int, number: float) -> None:
    # Mutation: reshape the numbers in Fortran's order.
    actions = actions_of(spaces.Box(-3, 5, (rows, columns)))
    action = np.zeros(rows * columns, np.float32)
    action[place] = number
    expected = np.ones((rows, columns))
    expected[place // columns, place % columns] = 4 * number + 1
    assert taken(actions, action) == pytest.approx(expected)


def test_whole_numbers_are_the_nearest() -> None:
    actions = actions_of(spaces.Box(0, 255, (3,), np.uint8))
    reached = taken(actions, [-1, 0.001, 0.999])
    assert (reached.tolist(), reached.dtype) == ([0, 128, 255], np.uint8)


@settings(max_examples=50)
@given(space=choices(), seed=st.integers(0, 99))
def test_every_combination_of_choices_is_reached(space: spaces.MultiDiscrete, seed: int) -> None:
    # Mutation: leave out `start`.
    actions = actions_of(space)
    assert actions.spec == MultiDiscrete(tuple(space.nvec.ravel().tolist()))
    space.seed(seed)
    wanted = space.sample()
    reached = taken(actions, (wanted - space.start).ravel())
    assert np.array_equal(reached, wanted) and space.contains(reached)


def test_bits_are_choices_of_two() -> None:
    space = spaces.MultiBinary((2, 2))
    actions = actions_of(space)
    assert actions.spec == MultiDiscrete((2, 2, 2, 2))
    reached = taken(actions, [0, 1, 1, 0])
    assert space.contains(reached) and reached.tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize(
    ("space", "wrong"),
    [
        (spaces.Discrete(3), [3, -1]),
        (spaces.MultiDiscrete([2, 3]), [[0, 3], [-1, 0], [0], 0, [0.0, 1.0], [[0, 1]], [np.nan, 0]]),
        (spaces.Box(-2, 2, (2,)), [[np.nan, 0], [0, np.inf], [0], 0, [[0, 0]], [0, 0, 0], "ab"]),
    ],
)
def test_what_cannot_be_chosen_is_refused(space: spaces.Space[Any], wrong: list[Any]) -> None:
    actions = actions_of(space)
    for action in wrong:
        with pytest.raises(ValueError, match=r"no such action|could not convert") as raised:
            actions.read(action)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("space", "told"),
    [
        (spaces.Text(5), "actions must be Discrete, MultiDiscrete, MultiBinary or Box, not Text"),
        (spaces.Dict(a=spaces.Discrete(2)), "actions must be .*, not Dict"),
        (spaces.Tuple([spaces.Discrete(2)] * 40), "actions must be .*, not Tuple"),
        (spaces.Box(-np.inf, 1, (2,)), r"actions of a Box must have finite bounds, not Box\(-inf, 1"),
        (spaces.Box(-1.7e308, 1.7e308, (1,), np.float64), "finite bounds"),
        (spaces.Box(-1, 1, (0,)), "actions hold no number"),
        (spaces.Box(0, 2**63 - 1, (1,), np.int64), r"whole numbers must be fewer than 2\^53 apart"),
    ],
)
def test_what_no_agent_can_choose_from_is_refused(space: spaces.Space[Any], told: str) -> None:
    with pytest.raises(ValueError, match=told) as raised:
        actions_of(space)
    assert "\n" not in str(raised.value)


class Still(ReplayedEnvironment):
    """Nothing ever happens in it."""

    def __init__(self, action: ActionSpec) -> None:
        super().__init__("still", 0)
        self.spec = EnvironmentSpec(Field((1,), "float32"), action)

    def begin(self, seed: int) -> Row:  # noqa: ARG002
        return Row(np.zeros(1, np.float32), StepType.FIRST, 0.0, 1.0)

    def play(self, action: Any) -> Row:  # noqa: ARG002
        return Row(np.zeros(1, np.float32), StepType.MID, 0.0, 1.0)


@settings(max_examples=50)
@given(space=st.one_of(LEAVES, st.just(spaces.Discrete(1000))), seed=st.integers(0, 99), steps=st.integers(0, 5))
def test_stored_actions_are_what_was_chosen(space: spaces.Space[Any], seed: int, steps: int) -> None:
    # Mutation: store a choice among more than 256 in a byte.
    actions, random = actions_of(space), np.random.default_rng(seed)
    spec = actions.spec
    drawn = [random_action(spec, random) for _ in range(steps)]
    environment = Still(spec)
    environment.reset()
    for action in drawn:
        environment.step(action)
    chosen = [actions.read(action) for action in drawn]
    stored = environment.snapshot()["actions"]
    assert stored.shape == (steps, *spec.field.shape)
    assert stored.dtype == (np.float32 if isinstance(spec, Box) else np.int32 if spec == Discrete(1000) else np.uint8)
    for action, kept in zip(chosen, stored, strict=True):
        again = actions.read(kept)
        assert np.array_equal(again, action) and np.array_equal(actions.native(again), actions.native(action))

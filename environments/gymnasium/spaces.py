"""Spaces of Gymnasium as agents see them: what becomes of an observation, and what an action becomes.

What a network gets as an observation:
- images, which are uint8 Boxes [H, W], [H, W, C] or [C, H, W] of at least 16x16 with fewer colours or planes than
  that: [C, H, W], grey ones [H, W], uint8, in their own size;
- any other Box, such as a vector, a board of int8 or an image of floats: its numbers in one row, float32, unscaled;
  bytes that go up to 255 stay uint8, which networks take for fractions;
- Discrete: one-hot, float32; MultiDiscrete: the same of each number, one after the other; MultiBinary: its bits;
- Text: the numbers of its first 16 words, see `environments.words`;
- Dict and Tuple of these, also within each other: one row of float32, whose parts have names. Keys are sorted, and
  stand before those of the spaces within, as in "arm.position"; spaces of a Tuple are "0", "1" and so on. Images among
  them stay images, and stand before the row, and texts behind it: see `memory.environment_spec.packed`.

What an agent chooses: see `memory.environment_spec`. The numbers of a Box go from -1 at its lower bounds to 1 at its
upper ones.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from gymnasium import spaces

from rainbow_iqn_apex.common.text import one_line
from rainbow_iqn_apex.environments.words import numbered, text_field
from rainbow_iqn_apex.memory.chunk import MOST
from rainbow_iqn_apex.memory.environment_spec import ActionSpec, Box, Discrete, Field, MultiDiscrete, Part, pack, packed
from rainbow_iqn_apex.memory.rows import Array

MOST_WORDS = 16  # of a text
_ROUNDING = 1e-5  # by which single precision may have moved a number that was inside, as a share of it
_MOST_NUMBERS = 2**24  # of an observation: 64 MB
SMALLEST_IMAGE = 16  # pixels: fewer rows or columns of bytes are a board, whose symbols are no colours
_NUMBER = np.dtype(np.float32)
_MOST_WHOLE = 2**53  # between two whole numbers that float64 tells apart from all between them


class View(NamedTuple):
    """Observations of a space as a network gets them."""

    field: Field
    show: Callable[[Any], Array]  # an observation as a new array of this field
    parts: tuple[Part, ...] = ()  # of the numbers of a Dict or Tuple


class Actions(NamedTuple):
    """Actions of a space as an agent chooses them."""

    spec: ActionSpec
    read: Callable[[Any], Any]  # what an agent chose, as an int or a new array; ValueError for what it cannot choose
    native: Callable[[Any], Any]  # what `read` returned, as the environment takes it


# --- observations ---


def view_of(space: spaces.Space[Any]) -> View:
    """Return how a network gets a space's observations; raises ValueError for spaces that none can get."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        view = _joined(space)
    elif _is_text(space):
        view = _joined(spaces.Tuple([space]))
    elif is_image(space):
        view = _picture(space)
    else:
        view = _flat_view(space)
    if not all(view.field.shape):
        raise ValueError(f"observations hold no number: {one_line(space)}")
    if view.field.shape[0] > _MOST_NUMBERS:
        raise ValueError(
            f"observations hold {view.field.shape[0]} numbers, more than {_MOST_NUMBERS}: {one_line(space)}"
        )
    return view


def check_inside(space: spaces.Space[Any], obs: Any, name: str = "") -> str:
    """Raise ValueError for an observation outside its space, `name` within an observation of several parts.

    Unlike `contains` of Gymnasium, this admits any dtype whose numbers the space has: float64 where it has float32, or
    a list of whole numbers where it has bytes. Floats beyond the bounds of a Box are admitted, too, as networks get
    them unchanged, and environments such as LunarLander have them: returns which, empty if there are none.
    """
    if isinstance(space, spaces.Dict):
        if not isinstance(obs, Mapping) or obs.keys() != space.spaces.keys():
            found = sorted(map(str, obs)) if isinstance(obs, Mapping) else type(obs).__name__
            raise ValueError(f"{name}expected the keys {sorted(map(str, space.spaces))}, got {one_line(found)}")
        notes = [check_inside(inner, obs[key], f"{name}{key}: ") for key, inner in space.spaces.items()]
        return next(filter(None, notes), "")
    if isinstance(space, spaces.Tuple):
        if not isinstance(obs, tuple | list) or len(obs) != len(space.spaces):
            raise ValueError(f"{name}expected {len(space.spaces)} parts, got {one_line(obs)}")
        notes = [check_inside(inner, obs[place], f"{name}{place}: ") for place, inner in enumerate(space.spaces)]
        return next(filter(None, notes), "")
    if _is_text(space):
        if not space.contains(obs):
            raise ValueError(f"{name}expected {one_line(space)}, got {one_line(obs)!r}")
        return ""
    return _check_numbers(space, np.asarray(obs), name)


def _check_numbers(space: spaces.Space[Any], numbers: Array, name: str) -> str:
    """Check numbers of a space without spaces within, as `check_inside`."""
    if numbers.shape != space.shape or numbers.dtype.kind not in "uifb":
        raise ValueError(f"{name}expected {space.dtype} {space.shape}, got {numbers.dtype} {numbers.shape}")
    is_whole = space.dtype is not None and space.dtype.kind != "f"
    if is_whole and numbers.dtype.kind == "f" and (numbers != np.rint(numbers)).any():
        raise ValueError(f"{name}expected whole numbers, got {one_line(numbers)}")
    low, high = _bounds(space)
    if not ((numbers < low) | (numbers > high)).any():  # false for NaN, which `flaw` names
        return ""
    found, low, high = (
        np.broadcast_to(part, numbers.shape).ravel().astype(np.float64) for part in (numbers, low, high)
    )
    with np.errstate(invalid="ignore"):  # of two infinite ones
        past = np.maximum(low - found, found - high)
    place = int(np.nanargmax(past))
    beyond = f"{name}{found[place]:.12g} as number {place}, which goes from {low[place]:.12g} to {high[place]:.12g}"
    if is_whole:
        raise ValueError(beyond)
    return beyond if past[place] > _ROUNDING * (1 + abs(found[place])) else ""


def _bounds(space: spaces.Space[Any]) -> tuple[Array, Array]:
    """Return the least and the greatest of each number of a space."""
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.Discrete):
        return np.asarray(space.start), np.asarray(space.start + space.n - 1)
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return np.zeros(1, np.int64), np.ones(1, np.int64)  # MultiBinary


def _is_text(space: spaces.Space[Any]) -> bool:
    return space.dtype is not None and space.dtype.kind == "U"  # Minigrid's missions are no `Text`, but texts


def is_image(space: spaces.Space[Any]) -> TypeGuard[spaces.Box]:
    """Return whether a space has images: bytes in rows and columns, before or behind them colours or planes, if any."""
    if not isinstance(space, spaces.Box):
        return False
    sides = sum(side >= SMALLEST_IMAGE for side in space.shape)
    return space.dtype == np.uint8 and sides == 2 and _colours(space.shape) is not None


def _colours(shape: tuple[int, ...]) -> int | None:
    """Return which axis of an image is that of colours or planes: 0, 2, or -1 if none is; None: it is no image."""
    if len(shape) == 2:
        return -1
    small = [axis for axis, side in enumerate(shape) if side < SMALLEST_IMAGE]
    return small[0] if len(shape) == 3 and small in ([0], [2]) else None


def flaw(obs: Array, parts: tuple[Part, ...]) -> str:
    """Return which number of an observation as shown no replay can hold, and in which part; empty if all are fine."""
    if obs.dtype != _NUMBER or np.abs(obs).max() <= MOST:  # false for NaN
        return ""
    place = int(np.argmin(np.abs(obs) <= MOST))
    name = next((f" of {part.name!r}" for part in parts if part.start <= place < part.stop), "")
    return f"{obs[place]:g} as number {place}{name}"


def _picture(space: spaces.Box) -> View:
    order = (2, 0, 1) if _colours(space.shape) == 2 else range(len(space.shape))
    shape = tuple(space.shape[axis] for axis in order)  # [C, H, W] or [H, W]
    shown = shape[1:] if shape[:-2] == (1,) else shape

    def show(obs: Any) -> Array:
        found = np.asarray(obs)
        if found.shape != space.shape or found.dtype.kind not in "uib":
            raise ValueError(f"an image is {found.dtype} {found.shape} and not uint8 {space.shape}")
        return np.array(found.transpose(order), np.uint8, order="C").reshape(shown)

    return View(Field(shown, "uint8"), show)


def _flat_view(space: spaces.Space[Any]) -> View:
    if isinstance(space, spaces.Discrete):
        return _one_hot(np.array([space.start]), np.array([space.n]))
    if isinstance(space, spaces.MultiDiscrete):
        return _one_hot(space.start.ravel(), space.nvec.ravel())
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        is_bytes = isinstance(space, spaces.Box) and space.dtype == np.uint8 and space.high.max(initial=0) == 255
        return _flat(int(np.prod(space.shape)), np.dtype(np.uint8) if is_bytes else _NUMBER)
    raise ValueError(
        "observations must be Box, Discrete, MultiDiscrete, MultiBinary or Text, or Dict or Tuple of these, "
        f"not {one_line(space)}"
    )


def _flat(length: int, dtype: np.dtype[Any]) -> View:
    def show(obs: Any) -> Array:
        with np.errstate(over="ignore"):  # of a float64: it becomes infinite, and is refused
            return np.array(obs, dtype).reshape(length)

    return View(Field((length,), dtype.name), show)


def _one_hot(first: Array, counts: Array) -> View:
    """Show numbers [K], of which number k is one of `counts[k]` from `first[k]` on."""
    first, counts = first.astype(np.int64), counts.astype(np.int64)
    size = sum(counts.tolist())
    last = first + counts - 1
    origins = np.cumsum(counts) - counts - first  # [K] where a 0 would stand

    def show(obs: Any) -> Array:
        row = np.zeros(size, np.float32)
        numbers = np.asarray(obs, np.int64).reshape(first.shape)
        if (numbers < first).any() or (numbers > last).any():
            raise ValueError(f"{one_line(obs)} is outside")
        row[origins + numbers] = 1
        return row

    return View(Field((size,), "float32"), show)


def _joined(space: spaces.Space[Any]) -> View:
    """Show the observations of nested spaces: images as they are, texts as words, and all others in one row."""
    leaves = list(_leaves(space, ()))
    images = [(keys, _picture(inner)) for keys, inner in leaves if is_image(inner)]
    texts = [(keys, _text()) for keys, inner in leaves if _is_text(inner)]
    row = _row([(keys, inner) for keys, inner in leaves if not (is_image(inner) or _is_text(inner))])
    if not images and not texts:
        return row
    views = [*images, *([((), row)] if row.field.shape[0] else []), *texts]

    def show(obs: Any) -> Array:
        return pack(view.show(_at(obs, keys)) for keys, view in views)

    return View(packed(*(view.field for _, view in views)), show, row.parts)


def _text() -> View:
    field = text_field(MOST_WORDS)
    return View(field, lambda text: numbered(text, field))


_Leaves = list[tuple[tuple[Any, ...], spaces.Space[Any]]]


def _row(leaves: _Leaves) -> View:
    """Show the observations of spaces, each with the keys that lead to it, in one row."""
    shows = []
    parts = list[Part]()
    stop = 0
    for keys, inner in leaves:
        name = ".".join(map(str, keys))
        view = _flat_view(inner)
        start, stop = stop, stop + view.field.shape[0]
        parts.append(Part(name, start, stop))
        shows.append((keys, start, stop, view.show))
    names = [part.name for part in parts]
    if len(set(names)) < len(names):
        raise ValueError(f"two parts of the observations have the same name: {one_line(sorted(names))}")

    def show(obs: Any) -> Array:
        row = np.empty(stop, np.float32)
        for keys, start, end, part in shows:
            row[start:end] = part(_at(obs, keys))
        return row

    return View(Field((stop,), "float32"), show, tuple(parts))


def _at(obs: Any, keys: tuple[Any, ...]) -> Any:
    return reduce(lambda value, key: value[key], keys, obs)


def _leaves(space: spaces.Space[Any], keys: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], spaces.Space[Any]]]:
    """Yield the spaces within a space that have none within, and the keys that lead to each."""
    if isinstance(space, spaces.Dict):
        for key in sorted(space.spaces, key=str):
            yield from _leaves(space.spaces[key], (*keys, key))
    elif isinstance(space, spaces.Tuple):
        for place, inner in enumerate(space.spaces):
            yield from _leaves(inner, (*keys, place))
    else:
        yield keys, space


# --- actions ---


def actions_of(space: spaces.Space[Any]) -> Actions:
    """Return how an agent chooses a space's actions; raises ValueError for spaces from which none can choose."""
    if isinstance(space, spaces.Discrete):
        return _choice(int(space.start), int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return _choices(space, space.start, space.nvec)
    if isinstance(space, spaces.MultiBinary):
        return _choices(space, np.zeros(space.shape, np.int64), np.full(space.shape, 2))
    if isinstance(space, spaces.Box):
        return _scaled(space)
    raise ValueError(f"actions must be Discrete, MultiDiscrete, MultiBinary or Box, not {one_line(space)}")


def _choice(first: int, count: int) -> Actions:
    spec = Discrete(count)
    return Actions(spec, spec.number, lambda number: first + number)


def _choices(space: spaces.Space[Any], first: Array, counts: Array) -> Actions:
    """Choose numbers in the shape of a space, of which number k is one of `counts[k]` from `first[k]` on."""
    spec = MultiDiscrete(tuple(map(int, counts.ravel())))

    def read(action: Any) -> Array:
        numbers = np.array(action)
        if numbers.dtype.kind not in "iu" or numbers.shape != spec.field.shape or spec.error(numbers):
            raise ValueError(f"no such action: {one_line(action)}")
        return numbers.astype(np.int32)

    def native(numbers: Array) -> Array:
        return (first + numbers.reshape(first.shape)).astype(space.dtype)

    return Actions(spec, read, native)


def _scaled(space: spaces.Box) -> Actions:
    low, high = (bound.astype(np.float64) for bound in (space.low, space.high))
    with np.errstate(over="ignore"):
        span = high - low
    if not np.isfinite(span).all():
        raise ValueError(f"actions of a Box must have finite bounds, not {one_line(space)}")
    if not space.low.size:
        raise ValueError(f"actions hold no number: {one_line(space)}")
    spec = Box(space.low.size)
    is_whole = space.dtype is not None and space.dtype.kind != "f"
    if is_whole and span.max() > _MOST_WHOLE:
        raise ValueError(f"actions of a Box of whole numbers must be fewer than 2^53 apart, not {one_line(space)}")

    def read(action: Any) -> Array:
        numbers = np.array(action, np.float32)
        if numbers.shape != spec.field.shape or not np.isfinite(numbers).all():
            raise ValueError(f"no such action: {one_line(action)}")
        return numbers

    def native(numbers: Array) -> Array:
        # Rounding leaves [-1, 1] now and then. The sum below need not hit the upper bound, and never exceeds it.
        inside = np.minimum(np.maximum(numbers.reshape(low.shape), -1), 1)  # in half the time that np.clip takes
        share = (inside.astype(np.float64) + 1) / 2
        value = np.where(share < 1, low + share * span, high)
        return (np.rint(value) if is_whole else value).astype(space.dtype)

    return Actions(spec, read, native)

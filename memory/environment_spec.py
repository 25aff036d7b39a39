"""What an environment shows and what it takes: all that agents, chunks, decoder and evaluation need of it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rainbow_iqn_apex.memory.rows import Array


class Field(NamedTuple):
    """Shape (without leading time or slot dimensions) and dtype of one stored array."""

    shape: tuple[int, ...]
    dtype: str  # "bool", within a packed field alone, takes a bit for each number
    inner: tuple["Field", ...] = ()  # of an observation of several kinds: their bytes, one after the other
    # Of a text: its words are numbers from 1 to before this one, and zeros stand behind the last. Of a picture: its
    # numbers are symbols, from 0 to before this one, and no shades.
    vocabulary: int = 0

    @property
    def is_picture(self) -> bool:
        """Whether a network sees more than a vector: a picture, grey [H, W] or [C, H, W], or several kinds at once."""
        return bool(self.inner) or len(self.shape) in (2, 3)

    @property
    def nbytes(self) -> int:
        """Bytes of one array."""
        count = math.prod(self.shape)
        return (count + 7) // 8 if self.dtype == "bool" else count * np.dtype(self.dtype).itemsize

    @property
    def scale(self) -> float:
        """The factor by which a network multiplies: it sees bytes as fractions, and all else as it is."""
        return 1 / 255 if self.dtype == "uint8" and not self.vocabulary else 1.0


def pack(arrays: Iterable[Array]) -> Array:
    """Return the bytes [n] of arrays of several kinds."""
    return np.concatenate([_bytes(np.ascontiguousarray(array).reshape(-1)) for array in arrays])


def _bytes(flat: Array) -> Array:
    return np.packbits(flat) if flat.dtype == np.bool_ else flat.view(np.uint8)


def packed(*inner: Field) -> Field:
    """Return the field of an observation of several kinds, such as a picture and numbers.

    Its arrays hold the bytes of all kinds, as `pack` returns them. So nothing between environment and network needs to
    know of the kinds.
    """
    return Field((sum(field.nbytes for field in inner),), "uint8", inner)


def unpack(field: Field, array: Array) -> list[Array]:
    """Return the arrays [..., *shape] of the kinds that an array [..., n] holds; of one kind, the array itself."""
    if not field.inner:
        return [array]
    parts = []
    stop = 0
    for inner in field.inner:
        start, stop = stop, stop + inner.nbytes
        part = np.ascontiguousarray(array[..., start:stop])
        if inner.dtype == "bool":
            numbers = np.unpackbits(part, axis=-1, count=math.prod(inner.shape)).view(np.bool_)
        else:
            numbers = part.view(inner.dtype)
        parts.append(numbers.reshape(*array.shape[:-1], *inner.shape))
    return parts


@dataclass(frozen=True)
class Discrete:
    """One choice among the actions 0 to `count` - 1."""

    count: int

    @property
    def field(self) -> Field:
        """How a row stores an action."""
        return Field((), "int32")

    def number(self, action: Any) -> int:
        """Return an action as a number; raises ValueError for one that there is not."""
        number = int(action)
        if not 0 <= number < self.count:
            raise ValueError(f"no such action: {number}; there are {self.count}")
        return number

    def error(self, actions: Array) -> str:
        """Return what is wrong with actions [T] int32; empty if nothing is."""
        is_good = actions.min() >= 0 and actions.max() < self.count
        return "" if is_good else f"an action beyond the {self.count} that there are"


@dataclass(frozen=True)
class MultiDiscrete:
    """Several choices at once: number k is one of 0 to `counts[k]` - 1."""

    counts: tuple[int, ...]

    def __str__(self) -> str:
        return f"{len(self.counts)} choices at once (MultiDiscrete or MultiBinary)"

    @property
    def field(self) -> Field:
        """How a row stores an action."""
        return Field((len(self.counts),), "int32")

    def error(self, actions: Array) -> str:
        """Return what is wrong with actions [T, K] int32; empty if nothing is."""
        return "" if _in_range(actions, 0, np.array(self.counts) - 1) else f"an action beyond the {self.counts}"


@dataclass(frozen=True)
class Box:
    """Numbers, `size` of them, which agents choose in [-1, 1] and environments scale to their own bounds."""

    size: int

    def __str__(self) -> str:
        return f"numbers (a Box of {self.size})"

    @property
    def field(self) -> Field:
        """How a row stores an action."""
        return Field((self.size,), "float32")

    def error(self, actions: Array) -> str:
        """Return what is wrong with actions [T, size] float32; empty if nothing is."""
        return "" if _in_range(actions, -1, 1) else "an action outside [-1, 1]"


ActionSpec = Discrete | MultiDiscrete | Box


class Part(NamedTuple):
    """Numbers of an observation that belong together: those from `start` to before `stop`."""

    name: str
    start: int
    stop: int


class EnvironmentSpec(NamedTuple):
    """An environment's observations and actions."""

    observation: Field
    action: ActionSpec
    parts: tuple[Part, ...] = ()  # of observations that were put together, in order and without gaps

    def part(self, name: str) -> slice:
        """Return where in an observation a part lies; raises KeyError if there is none of this name."""
        return {part.name: slice(part.start, part.stop) for part in self.parts}[name]


def _in_range(actions: Array, low: Array | int, high: Array | int) -> bool:
    return bool(np.all((actions >= low) & (actions <= high)))  # false for NaN

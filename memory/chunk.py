"""A chunk: a self-contained window of consecutive rows of one environment.

    | lead = stack - 1 + burn_in | length: rows that may be learned from | tail: rows that returns look at |

Windows of one environment start every `stride` rows. An agent declares its `ChunkSpec`; it is the only place where
agents differ in data format. Sampling takes `sample` consecutive rows of the middle part, with the lead before and the
tail after.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from memory.rows import Array, Arrays, Kind


class Field(NamedTuple):
    """Shape (without leading time or slot dimensions) and dtype of one stored array."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class ChunkSpec:
    """Sizes of an agent's chunks, in rows.

    `out` names the arrays of the acting network that travel with every row (a behaviour policy's logits, say), and
    `state` the recurrent state, stored once a chunk for its first usable row. Both are empty for the Rainbow agents.
    """

    stack: int
    burn_in: int
    length: int
    tail: int
    stride: int
    sample: int
    out: tuple[tuple[str, Field], ...] = ()
    state: tuple[tuple[str, Field], ...] = ()

    def __post_init__(self) -> None:
        if min(self.stack, self.length, self.stride, self.sample) < 1 or min(self.burn_in, self.tail) < 0:
            raise ValueError(f"a chunk has no such shape: {self}")
        if self.stride > self.length or self.length % self.sample:
            raise ValueError(f"stride must not exceed length, and sample must divide it: {self}")

    @property
    def lead(self) -> int:
        """Rows before the first learnable one."""
        return self.stack - 1 + self.burn_in

    @property
    def window(self) -> int:
        """Rows of a chunk."""
        return self.lead + self.length + self.tail

    @property
    def leaves(self) -> int:
        """Samples that a chunk can give, each with its own priority."""
        return self.length // self.sample

    def learnable(self, kind: Array) -> Array:
        """Which samples of a chunk hold a row to learn from: kind [window] -> [leaves] bool."""
        middle = kind[self.lead : self.lead + self.length]
        return np.asarray((middle != Kind.LAST).reshape(self.leaves, self.sample).any(axis=1))

    @property
    def sample_window(self) -> int:
        """Rows of a sampled window."""
        return self.lead + self.sample + self.tail

    def row_fields(self, observation: Field) -> dict[str, Field]:
        """Arrays of a chunk with one entry a row."""
        rows = {
            "obs": observation,
            "kind": Field((), "uint8"),
            "reward": Field((), "float32"),
            "discount": Field((), "float32"),
            "action": Field((), "int32"),
        }
        return rows | {f"out.{name}": field for name, field in self.out}


class ChunkId(NamedTuple):
    """Names a chunk for the whole run: the actor, and the place in its stream."""

    actor: int
    sequence: int


@dataclass(frozen=True)
class Chunk:
    """A window of rows as it is sent and stored.

    `rows` holds the arrays of `ChunkSpec.row_fields`, [window, ...]; `state` the recurrent state, [...]; `priorities`
    [leaves] float32 are what the tree stores as they are (the exponent is applied), 0 where nothing can be learned.
    `version` is that of the weights which acted last.
    """

    env: int
    version: int
    rows: Arrays
    state: Arrays
    priorities: Array


def check_chunk(chunk: Chunk, spec: ChunkSpec, fields: dict[str, Field]) -> None:
    """Raise ValueError unless the chunk has exactly the arrays of `spec`, with values that replay can hold."""
    wanted = {name: ((spec.window, *field.shape), field.dtype) for name, field in fields.items()}
    if (found := forms(chunk.rows)) != wanted:
        raise ValueError(f"chunk rows are {found}, expected {wanted}")
    wanted = {name: (field.shape, field.dtype) for name, field in spec.state}
    if (found := forms(chunk.state)) != wanted:
        raise ValueError(f"chunk state is {found}, expected {wanted}")
    priorities = chunk.priorities
    if _form(priorities) != ((spec.leaves,), "float32") or not np.all(np.isfinite(priorities) & (priorities >= 0)):
        raise ValueError(f"chunk priorities must be {spec.leaves} finite float32, none below 0")
    if chunk.rows["kind"].max() > Kind.LAST:
        raise ValueError("chunk has a row of unknown kind")
    if np.any(priorities[~spec.learnable(chunk.rows["kind"])] != 0):
        raise ValueError("chunk gives a priority to LAST rows")
    for name, array in (chunk.rows | chunk.state).items():  # one NaN would make all weights NaN
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"chunk has a number in {name} that is not finite")
    if np.any((chunk.rows["discount"] < 0) | (chunk.rows["discount"] > 1)):
        raise ValueError("chunk has a discount outside 0 to 1")


def forms(arrays: Arrays) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shapes and dtypes of named arrays."""
    return {name: _form(array) for name, array in arrays.items()}


def _form(array: Array) -> tuple[tuple[int, ...], str]:
    return array.shape, array.dtype.name

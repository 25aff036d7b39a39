"""A chunk: a self-contained window of consecutive rows of one environment.

    | prefix = stack - 1 + burn_in | length: rows that may be learned from | bootstrap_rows: rows that returns look at |

Windows of one environment start every `period` rows. An agent declares its `ChunkSpec`; it is the only place where
agents differ in data format. Sampling takes `sample_length` consecutive rows of the middle part, with the prefix
before and the bootstrap rows after.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from rainbow_iqn_apex.memory.environment_spec import ActionSpec, EnvironmentSpec, Field, unpack
from rainbow_iqn_apex.memory.hindsight import DISCOUNT, hindsight_fields
from rainbow_iqn_apex.memory.rows import Array, Arrays, StepType

LAST_ACTION = "last_action"  # a state's entry of this name is an action, chosen at the row before
MOST = 1e9  # of any number in a chunk: sums and squares of several stay finite in float32
_Forms = dict[str, tuple[tuple[int, ...], str]]  # shapes and dtypes of arrays by name
_ANY = (-MOST, MOST, f"beyond {MOST:g}")
_LAST = int(StepType.LAST)  # NumPy compares with a plain int in a tenth of the time that it takes for an IntEnum


@dataclass(frozen=True)
class ChunkSpec:
    """Sizes of an agent's chunks, in rows.

    `extras` names the arrays of the acting network that travel with every row (a behaviour policy's logits, say), and
    `state` those of the recurrent state, stored once a chunk: the state before its first row with a full stack is
    processed. `prioritised` chunks bring a priority for each of their samples.
    """

    stack: int
    burn_in: int
    length: int
    bootstrap_rows: int
    period: int
    sample_length: int
    extras: tuple[tuple[str, Field], ...] = ()
    state: tuple[tuple[str, Field], ...] = ()
    prioritised: bool = True
    hindsight: int = 0  # goals that each row is given when its chunk is complete; 0: none (`memory.hindsight`)

    def __post_init__(self) -> None:
        if (
            min(self.stack, self.length, self.period, self.sample_length) < 1
            or min(self.burn_in, self.bootstrap_rows) < 0
        ):
            raise ValueError(f"a chunk has no such shape: {self}")
        if self.period > self.length or self.length % self.sample_length:
            raise ValueError(f"period must not exceed length, and sample_length must divide it: {self}")

        if self.state and self.samples > 1:
            raise ValueError(f"a chunk with a recurrent state is one sample, not {self.samples}: {self}")

    @property
    def prefix(self) -> int:
        """Rows before the first learnable one."""
        return self.stack - 1 + self.burn_in

    @property
    def window(self) -> int:
        """Rows of a chunk."""
        return self.prefix + self.length + self.bootstrap_rows

    @property
    def samples(self) -> int:
        """Samples that a chunk can give, each with its own priority."""
        return self.length // self.sample_length

    def learnable(self, step_type: Array) -> Array:
        """Find the samples of a chunk that hold a row to learn from: step_type [window] -> [samples] bool."""
        rows: Array = step_type[self.prefix : self.prefix + self.length] != _LAST
        return rows if self.sample_length == 1 else np.asarray(rows.reshape(self.samples, -1).any(axis=1))

    def steps(self, step_type: Array) -> int:
        """Count the agent steps that a chunk adds to those of the chunk before it: no LAST rows; step_type [window]."""
        return int(np.count_nonzero(step_type[self.prefix : self.prefix + self.period] != _LAST))

    @property
    def sample_window(self) -> int:
        """Rows of a sampled window."""
        return self.prefix + self.sample_length + self.bootstrap_rows

    def row_fields(self, environment: EnvironmentSpec) -> dict[str, Field]:
        """Return the arrays of a chunk with one entry a row."""
        later = hindsight_fields(environment, self.hindsight) if self.hindsight else {}
        return self.played_fields(environment) | later

    def played_fields(self, environment: EnvironmentSpec) -> dict[str, Field]:
        """Return those of them that are known when a row is played."""
        rows = {
            "obs": environment.observation,
            "step_type": Field((), "uint8"),
            "reward": Field((), "float32"),
            "discount": Field((), "float32"),
            "action": environment.action.field,
        }
        return rows | {f"extras.{name}": field for name, field in self.extras}


class ChunkId(NamedTuple):
    """Names a chunk for the whole run: the actor, and the place in its stream."""

    actor: int
    sequence: int


@dataclass(frozen=True)
class Chunk:
    """A window of rows as it is sent and stored.

    `rows` holds the arrays of `ChunkSpec.row_fields`, [window, ...]; `state` the recurrent state, [...]; `priorities`
    [samples] float32 are what the tree stores as they are (the exponent is applied), 0 where nothing can be learned.
    Priorities are None if the spec is not prioritised. `version` is that of the weights which acted last.
    """

    env: int
    version: int
    rows: Arrays
    state: Arrays
    priorities: Array | None


def check_played(chunk: Chunk, spec: ChunkSpec, fields: dict[str, Field], action: ActionSpec) -> None:
    """Raise ValueError for a chunk that `check_chunk` refuses, or that has other actions than those of a spec."""
    check_chunk(chunk, spec, fields)
    for actions in (chunk.rows["action"], chunk.state.get(LAST_ACTION)):
        if actions is not None and (error := action.error(actions)):
            raise ValueError(f"chunk has {error}")


def check_chunk(chunk: Chunk, spec: ChunkSpec, fields: dict[str, Field]) -> None:
    """Raise ValueError unless the chunk has exactly the arrays of `spec`, with values that replay can hold.

    Every chunk is checked beside the learner's updates: a good array costs two reductions, and no call that allocates.
    """
    window = spec.window
    _check_forms(
        "rows", forms(chunk.rows), {name: ((window, *field.shape), field.dtype) for name, field in fields.items()}
    )
    _check_forms("state", forms(chunk.state), {name: (field.shape, field.dtype) for name, field in spec.state})
    _check_priorities(chunk, spec)
    if chunk.rows["step_type"].max() > _LAST:
        raise ValueError("chunk has a row of unknown step type")
    discounts = ("discount", DISCOUNT) if spec.hindsight else ("discount",)
    for name, array in chunk.rows.items():
        is_discount = name in discounts
        for numbers in unpack(fields[name], array):
            _check_numbers(name, numbers, *((0, 1, "outside 0 to 1") if is_discount else _ANY))
    for name, array in chunk.state.items():
        _check_numbers(name, array, *_ANY)


def _check_forms(what: str, found: _Forms, wanted: _Forms) -> None:
    """Raise ValueError for the first array that is missing, not wanted or of another form."""
    if found == wanted:
        return
    name = next(name for name in (*wanted, *found) if found.get(name) != wanted.get(name))
    forms_ = [f"{form[1]} {list(form[0])}" if form else "none" for form in (found.get(name), wanted.get(name))]
    raise ValueError(f"chunk {what}: {name} is {forms_[0]}, expected {forms_[1]}")


def _check_numbers(name: str, array: Array, low: float, high: float, error: str) -> None:
    """Raise ValueError for a number that is not finite, or outside the bounds; one NaN would make all weights NaN."""
    if array.dtype.kind != "f" or not array.size:
        return
    # These take half the time of `min` and `max`. A NaN is both.
    least, most = array.item(array.argmin()), array.item(array.argmax())
    if low <= least and most <= high:  # false for NaN
        return
    if not np.isfinite(array).all():
        raise ValueError(f"chunk has a number in {name} that is not finite")
    raise ValueError(f"chunk has a number in {name} {error}")


def _check_priorities(chunk: Chunk, spec: ChunkSpec) -> None:
    priorities = chunk.priorities
    if (priorities is not None) != spec.prioritised:
        raise ValueError(f"chunk has {'no' if spec.prioritised else 'unwanted'} priorities")
    if priorities is None:
        return
    is_whole = _form(priorities) == ((spec.samples,), "float32")
    if not (is_whole and priorities.min() >= 0 and priorities.max() < np.inf):  # false for NaN
        raise ValueError(f"chunk priorities must be {spec.samples} finite float32, none below 0")
    learnable = spec.learnable(chunk.rows["step_type"])
    if not learnable.all() and priorities[~learnable].any():
        raise ValueError("chunk gives a priority to LAST rows")


def forms(arrays: Arrays) -> _Forms:
    """Return the shapes and dtypes of named arrays."""
    return {name: _form(array) for name, array in arrays.items()}


def _form(array: Array) -> tuple[tuple[int, ...], str]:
    return array.shape, _name_of(array.dtype)


@lru_cache(64)  # NumPy puts a dtype's name together at each call, which takes as long as checking an array
def _name_of(dtype: np.dtype[Any]) -> str:
    return dtype.name

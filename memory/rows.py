"""The one data type of the project: the row, one environment at one moment.

Row t holds the observation o_t, the reward r_t and discount d_t that *arrived with* it, and the action a_t *chosen at*
it. An episode of L actions has L + 1 rows, FIRST, MID, ..., LAST; the row after LAST is FIRST. A discount of 0 marks a
true end; a truncation is a LAST row with discount 1. Every function over rows follows four rules:

1. a LAST row is never learned from;
2. a trace or an n-step sum stops where the next row is LAST;
3. a frame stack stops at FIRST (older frames are zero);
4. a recurrent state is reset at FIRST.
"""

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = dict[str, Array]  # named arrays: what is stored, sent and restored
DTYPES = {name: np.dtype(name) for name in ("uint8", "uint16", "int32", "int64", "float32", "float64")}  # theirs


class StepType(IntEnum):
    """Place of a row in its episode."""

    FIRST = 0
    MID = 1
    LAST = 2


class Row(NamedTuple):
    """An environment at one moment; the action chosen there is kept beside it."""

    obs: Array  # one new frame or vector, never a stack
    step_type: StepType
    reward: float  # raw, unclipped; 0 on FIRST
    discount: float  # 0 only at a true end; 1 on FIRST


class Rows(NamedTuple):
    """The current rows of E environments."""

    obs: Array  # [E, ...]
    step_type: Array  # [E] uint8
    reward: Array  # [E] float32
    discount: Array  # [E] float32

    @classmethod
    def stack(cls, rows: list[Row]) -> "Rows":
        """Batch single rows; observations are copied."""
        return cls(
            obs=np.stack([row.obs for row in rows]),
            step_type=np.array([row.step_type for row in rows], np.uint8),
            reward=np.array([row.reward for row in rows], np.float32),
            discount=np.array([row.discount for row in rows], np.float32),
        )

    def row(self, env: int) -> Row:
        """Return the row of one environment."""
        return Row(
            self.obs[env], StepType(int(self.step_type[env])), float(self.reward[env]), float(self.discount[env])
        )


def section(arrays: Arrays, prefix: str) -> Arrays:
    """Return the arrays whose names begin with a prefix, under their names without the prefix."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}

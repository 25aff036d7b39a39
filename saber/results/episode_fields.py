"""What the fields of an episode's record may hold: the one place with their types and bounds, by name."""

import re
import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple, TypeVar

from rainbow_iqn_apex.environments.scores import EpisodeRecord, VersionedRecord

Record = TypeVar("Record", bound=EpisodeRecord)

MOST = 10**15  # beyond any count or score of a game; means and spreads of numbers below it are finite
ONE_WORD = re.compile(r"[A-Za-z0-9_-]{1,64}")  # nothing that would need quoting in a CSV


class EpisodeField(NamedTuple):
    """A field's type as in a log, and what its values must be."""

    type: Callable[[Any], Any]  # int, float or str
    expected: str
    holds: Callable[[Any], bool]  # of a value of this type

    def parse(self, cell: Any) -> Any:
        """Return the value that a cell of a CSV holds, or is to hold; raises ValueError if no episode can have it."""
        value = self.type(cell)  # a NumPy scalar would print as np.float64(...)
        if not self.holds(value):
            raise ValueError(f"expected {self.expected}")
        return sys.intern(value) if self.type is str else value  # a few words, repeated in every record

    def format(self, value: Any) -> str:
        """Write a value as a cell of a CSV; whole scores look like integers. Raises ValueError as `parse` does."""
        cell = self.parse(value)
        return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


_COUNT = EpisodeField(int, "a whole number from 0 to below 10^15", lambda value: 0 <= value < MOST)
_SCORE = EpisodeField(float, "a number between -10^15 and 10^15", lambda value: -MOST < value < MOST)
_WORD = EpisodeField(str, "one word of at most 64 characters", lambda value: bool(ONE_WORD.fullmatch(value)))

EPISODE_FIELDS: dict[str, EpisodeField] = {  # in the order of EpisodeRecord
    "T_actors": _COUNT,
    "T_learner": _COUNT,
    "actor": _COUNT,
    "env": _COUNT,
    "episode": _COUNT,
    "score_5min": _SCORE,
    "score_30min": _SCORE,
    "score_saber": _SCORE,
    "length": _COUNT,
    "end": _WORD,
}
FIELDS: dict[type[EpisodeRecord], dict[str, EpisodeField]] = {
    EpisodeRecord: EPISODE_FIELDS,
    VersionedRecord: EPISODE_FIELDS | {"version": _COUNT},
}
assert all(list(known) == [field.name for field in fields(record)] for record, known in FIELDS.items())


def make_record(values: dict[str, Any], record_type: type[Record]) -> Record:
    """Make a record of values from outside; raises ValueError, naming the field, for a value no episode can have."""
    known = FIELDS[record_type]
    if values.keys() != known.keys():
        names = sorted(map(ascii, values.keys() ^ known.keys()))
        raise ValueError(f"an episode has other fields; missing or unknown: {', '.join(names)[:200]}")
    return record_type(**{name: _checked(name, known[name], value) for name, value in values.items()})


def _checked(name: str, field: EpisodeField, value: Any) -> Any:
    types = (int, float) if field.type is float else (field.type,)
    if type(value) not in types or not field.holds(value):
        raise ValueError(f"{name} must be {field.expected}")  # the value is not shown: it may be long
    return field.parse(value)

"""Reads values from outside by declared types.

Whoever may write to Redis or to a file may have written anything. So a type says what a value may be (its numbers'
bounds, its texts' and lists' lengths), and what it does not allow is refused in one line that quotes nothing of it.
"""

import json
import math
from dataclasses import fields
from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import Meta

from rainbow_iqn_apex.common.text import one_line

T = TypeVar("T")

MOST = 1e300  # of a number, so that its square or a sum with others is worth computing
MOST_SECONDS = 1 << 37  # since 1970, until the year 6325: datetime can show these

MOST_COUNTED = 10**15  # beyond any round, version, environment, or step of a run
Counted = Annotated[int, Meta(ge=0, lt=MOST_COUNTED)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]  # what an array can hold
Whole = Annotated[int, Meta(ge=0, lt=2**53)]  # what a float can hold
Number = Annotated[float, Meta(ge=-MOST, le=MOST)]
Moment = Annotated[float, Meta(ge=0, lt=MOST_SECONDS)]  # seconds since 1970
Word = Annotated[str, Meta(pattern=r"\A[A-Za-z0-9_-]{1,64}\Z")]


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; raises ValueError, also for NaN and infinities, which Python would accept, and for deep nesting."""
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise ValueError("no JSON") from error


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(text)
    return number


def parse(content: Any, kind: type[T], *, strict: bool = True) -> T:
    """Return plain values as a `kind`; raises ValueError for what the type does not allow.

    Without `strict` texts may stand for numbers, as in a CSV.
    """
    try:
        return msgspec.convert(content, kind, strict=strict)
    except (msgspec.ValidationError, RecursionError) as error:
        raise ValueError(one_line(error)) from error


def parse_record(content: Any, kind: type[T]) -> T:
    """Return an object of JSON as the dataclass `kind`, of which it has every field and no other; raises ValueError."""
    if not isinstance(content, dict) or content.keys() != {field.name for field in fields(cast(Any, kind))}:
        raise ValueError("other fields than this release writes")
    return parse(content, kind)


def read_record(data: bytes, kind: type[T], most: int) -> T:
    """Return `most` bytes of JSON, or fewer, as `parse_record` does; raises ValueError."""
    if len(data) > most:
        raise ValueError(f"{len(data)} bytes, {most} are allowed")
    return parse_record(parse_json(data), kind)

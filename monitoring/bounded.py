"""Reads JSON objects that anybody may have written into Redis.

What nobody of this project can have written raises ValueError, whose text follows the name of the thing ("a report").
"""

import json
from collections.abc import Set as AbstractSet
from typing import Any

from rainbow_iqn_apex.memory.broker.lease_owner import is_moment

MOST = 1e300  # of a number


def read_object(data: bytes, most: int, names: AbstractSet[str]) -> dict[str, Any]:
    """Parse an object of `most` bytes at most that has these names; raises ValueError."""
    if len(data) > most:
        raise ValueError(f"of {len(data)} bytes, {most} are allowed")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ValueError("is no JSON") from error
    if not isinstance(content, dict) or content.keys() != names:
        raise ValueError("has other fields than this release writes")
    return content


def number(value: Any) -> float:
    """Return a number that anybody can compute with; raises ValueError."""
    if type(value) not in (int, float) or not abs(value) <= MOST:  # of NaN, too
        raise ValueError("has a number that is none, or is too large")
    return float(value)


def moment(value: Any) -> float:
    """Return seconds since 1970; raises ValueError."""
    if not is_moment(int(at := number(value))):
        raise ValueError("has a time that is none")
    return at

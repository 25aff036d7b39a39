"""Find whether a Redis or Valkey server has the fix of a hole by which a user's script can take it over."""

import re
from collections.abc import Mapping
from typing import Any

_HOLE = "CVE-2025-49844"
# The first release with the fix, of each release line that got one. Later lines have had the fix from their beginning.
_FIXED = {
    "Redis": ((6, 2, 20), (7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2)),
    "Valkey": ((7, 2, 11), (8, 0, 6), (8, 1, 4)),
}


def unpatched(info: Mapping[str, Any]) -> str | None:
    """Return a line about a server whose version lacks the fix, by its INFO; None for one that has it.

    A distribution that adds fixes to an old version, as Debian does, keeps the version's number: the line says so.
    """
    name, key = ("Valkey", "valkey_version") if "valkey_version" in info else ("Redis", "redis_version")
    version = str(info.get(key))
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    present = tuple(map(int, numbers.groups())) if numbers else (0, 0, 0)
    same_line = [fixed for fixed in _FIXED[name] if fixed[:2] == present[:2]]
    if present >= min(same_line, default=_FIXED[name][-1]):
        return None
    return (
        f"{name} {version} lacks the fix of {_HOLE}, by which a user's script can take the server over, unless its "
        "distribution has added the fix: docs/access.md tells which server to take"
    )

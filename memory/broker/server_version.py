"""Known holes of Redis and Valkey servers, by version, of those that our users' rights or any stranger can reach.

Holes of commands that none of our users may give (RESTORE, CLIENT KILL, HyperLogLog) are left out. The sources are the
servers' release notes and advisories.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Version = tuple[int, int, int]


@dataclass(frozen=True)
class Hole:
    """A hole of servers, and who can do what by it.

    `fixed` has the first release with the fix, of each release line that got one: later lines have had it from their
    beginning. A line between two of these never got it.
    """

    name: str
    server: str
    fixed: tuple[Version, ...]
    effect: str
    since: Version = (0, 0, 0)
    where: Literal["everywhere", "in a cluster", "with TLS"] = "everywhere"


_SCRIPT = "a user's script can take the server over"
_REPLICA = "a user's script can take over a replica that takes writes"
_HOLES = (
    Hole("CVE-2025-49844", "Redis", ((6, 2, 20), (7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2)), _SCRIPT),
    Hole("CVE-2025-49844", "Valkey", ((7, 2, 11), (8, 0, 6), (8, 1, 4)), _SCRIPT),
    Hole(
        "CVE-2026-23631", "Redis", ((7, 2, 14), (7, 4, 9), (8, 2, 6), (8, 4, 3), (8, 6, 3)), _REPLICA, since=(7, 0, 0)
    ),
    Hole("CVE-2026-23631", "Valkey", ((7, 2, 13), (8, 0, 9), (8, 1, 7), (9, 0, 4)), _REPLICA),
    Hole(
        "CVE-2025-67733", "Valkey", ((7, 2, 12), (8, 0, 7), (8, 1, 6), (9, 0, 3)),
        "a user's script can forge the replies that others get",
    ),
    Hole("CVE-2026-27623", "Valkey", ((9, 0, 3),), "whoever reaches the port can end the server", since=(9, 0, 0)),
    Hole(
        "GHSA-fq2f-crmw-q97r", "Valkey", ((9, 1, 2),), "whoever reaches the port can take the server over",
        since=(9, 1, 0),
    ),
    Hole(
        "GHSA-f4q9-j22m-xqq9", "Valkey", ((9, 1, 3),), "a user who may PUBLISH, as none of ours may, can harm nodes",
        since=(9, 1, 0), where="in a cluster",
    ),
    Hole(
        "CVE-2026-21863", "Valkey", ((7, 2, 12), (8, 0, 7), (8, 1, 6), (9, 0, 3)),
        "whoever reaches the cluster's bus can end the server", where="in a cluster",
    ),
    Hole(
        "CVE-2026-81934", "Redis",
        ((6, 2, 24), (7, 2, 16), (7, 4, 11), (8, 2, 9), (8, 4, 6), (8, 6, 6), (8, 8, 2), (8, 10, 1)),
        "whoever reaches the port can take the server over", where="with TLS",
    ),
)  # fmt: skip


def unpatched(info: Mapping[str, Any], *, tls: bool = False) -> str | None:
    """Return a line about a server with known holes, by its INFO, and by whether it is reached by TLS; None without."""
    server, key = ("Valkey", "valkey_version") if "valkey_version" in info else ("Redis", "redis_version")
    is_cluster = "cluster" in (info.get("redis_mode"), info.get("server_mode"))
    return holes_of(server, str(info.get(key)), cluster=is_cluster, tls=tls)


def holes_of(server: str, version: str, *, cluster: bool = False, tls: bool = False) -> str | None:
    """Return a line with the holes of a version and the release to take; None for a version without known holes.

    A distribution that adds fixes to an old version, as Debian does, keeps the version's number: the line says so.
    """
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    present = tuple(map(int, numbers.groups())) if numbers else (0, 0, 0)
    reached = {"everywhere", *(["in a cluster"] if cluster else []), *(["with TLS"] if tls else [])}
    holes = [
        hole
        for hole in _HOLES
        if hole.server == server
        and hole.where in reached
        and (not numbers or hole.since <= present < _fix(hole, present))
    ]
    if not holes:
        return None
    needed = ".".join(map(str, max(_fix(hole, present) for hole in holes)))
    effects = "; ".join(f"{hole.name}, by which {hole.effect}" for hole in holes)
    return (
        f"{server} {version} lacks the fix of {effects}: take {server} {needed} or newer, unless its distribution has "
        "added the fix, which the version does not show (docs/access.md)"
    )


def _fix(hole: Hole, present: Sequence[int]) -> Version:
    """Return the first release with a hole's fix in the line of a version, else the newest line's."""
    return min((fixed for fixed in hole.fixed if fixed[:2] == tuple(present[:2])), default=hole.fixed[-1])

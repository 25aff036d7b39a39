"""Explain the errors of Redis servers in one line each: what is wrong, and what to do about it."""

import re
import ssl
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rainbow_iqn_apex.memory.broker.access import (
    CA_CERTS,
    CLIENT_CERT,
    CLIENT_KEY,
    DEFAULT_PORT,
    SENTINEL_USERNAME,
    USERNAME,
    Access,
    append_file,
)

APPEND_ERROR = "Errors writing to the AOF file"  # begins an error after MISCONF; what the system has said follows
_TROUBLE = {  # by the code with which the error begins; scripts repeat it within their own errors
    "max number of clients reached": (
        "takes no more connections (max number of clients reached): raise its maxclients (docs/access.md, as "
        "administrator)"
    ),
    "invalid bulk length": (
        "takes no value of this size (invalid bulk length): raise its proto-max-bulk-len (docs/access.md, as "
        "administrator)"
    ),
    "OOM": "has no room: raise its maxmemory (docs/access.md, as administrator)",
    APPEND_ERROR: (
        "cannot append to its file ({reason}): make room on its disk, or repair it; a learner that runs then has the "
        "file written again, as `bgrewriteaof` does, and if that does not help, start the server again"
    ),
    "MISCONF": "cannot write its file: make room on its disk, or see its log",
    "BUSY": "is busy with another client's script that does not end: `script kill` (docs/access.md, as administrator)",
    "LOADING": "is reading its file: wait until it has",
    "READONLY": "is a replica, which takes no writes: name its master, or make it one by `replicaof no one`",
    "MASTERDOWN": "is a replica without its master: name the master, or make it one by `replicaof no one`",
    "CLUSTERDOWN": "belongs to a Redis Cluster that is down: `cluster info` tells why",
    "TRYAGAIN": "is a node of a Redis Cluster that is moving the run's keys: wait until it has",
    "ASK": "is a node of a Redis Cluster that is moving the run's keys: wait until it has",
    "MOVED": "is a node of a Redis Cluster, and the run's keys belong to another node: name a server of its own",
}


def trouble_of(error: Exception) -> str | None:
    """Return what is wrong with the server and what to do, None for an error that is no such trouble."""
    said = " ".join(filter(None, (getattr(error, "status_code", None), str(error))))  # redis-py takes the code off
    how = next((how for code, how in _TROUBLE.items() if re.search(rf"\b{code}\b", said)), None)
    reason = re.search(rf"{APPEND_ERROR}: ([\w /-]{{1,100}})", said)
    return how and how.replace("{reason}", reason[1] if reason else "MISCONF")


def explain_trouble(error: Exception) -> str:
    """Return an error in one line, for people."""
    how = trouble_of(error)
    return f"the Redis server {how}" if how else " ".join(str(error).split())


def explain(error: Exception, access: Access, port: int) -> str:
    """Explain in one line why a connection could not be made, and what to do."""
    if trouble := trouble_of(error):
        return f"the server {trouble}"
    if fault := explain_tls(error):
        return fault
    if access.tls:
        advice = "docs/access.md tells how"
        hint = f", with TLS, and {CLIENT_CERT} if it needs one"
    else:
        advice = f"start one with `{_start_command(port)}`"
        hint = "; if it needs TLS, by rediss://"
    return f"no Redis server answers ({error}); {advice}, or name the machine and port of a running one{hint}"


def explain_tls(error: Exception) -> str | None:
    """Explain in one line why TLS has failed, and what to do; None for another error."""
    cause: BaseException | None = error
    while cause and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the server's certificate is refused: {cause.verify_message.rstrip('.')}; {_advice(cause.verify_code)}"
    if isinstance(cause, ssl.SSLError):
        reason = cause.reason or str(cause)
        if "ALERT" not in reason:
            return (
                f"TLS fails ({reason}): this port is an open one (redis://), or the server needs another {CLIENT_CERT}"
            )
        return (
            f"the server refuses the connection: {reason.split('ALERT_')[-1].replace('_', ' ').lower()}; {CLIENT_CERT} "
            f"and {CLIENT_KEY} must name a valid certificate that the server's authority has signed"
        )
    return None


def _start_command(port: int) -> str:
    """Return what starts a server at a port: a command of the installed package, if such a command runs."""
    if Path(sys.argv[0]).name.startswith("apex-"):
        return f"apex-redis --port-redis {port}"
    other = "" if port == DEFAULT_PORT else f" --port {port} --appendfilename {append_file(port)}"
    return f"redis-server redis_rainbow_6379.conf{other}"


def _advice(verify_code: int) -> str:
    if verify_code in (62, 64):  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
        return "name the server as its certificate does"
    if verify_code in (9, 10):  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
        return "make a new one as docs/access.md does, or set this machine's clock right"
    return f"{CA_CERTS} must name the certificate of the authority that signed it"


def explain_refusal(error: str) -> str:
    """Explain what the server refuses before a program has begun."""
    if "SELECT is not allowed in cluster mode" in error or "DB index is out of range" in error:
        return "has no database of that number, and a Redis Cluster has 0 alone: leave the number in the URL out"
    return f"refuses us: {error}"


def explain_denial(error: str, *, of_sentinel: bool = False) -> str | None:
    """Explain an error that shows a missing right of a user, also within a script; None for other errors."""
    said = ("no permissions", "noperm", "user executing the script can't", "acl failure in script")
    if not any(words in error.lower() for words in said):
        return None
    lack = "lacks a right that this program needs, see"
    if of_sentinel:
        return f"{SENTINEL_USERNAME}: the Sentinels' user {lack} docs/cluster.md: {error}"
    return f"{USERNAME}: the Redis user {lack} docs/access.md: {error}"


def is_wrong_type(error: object) -> bool:
    """Return whether this is the error of a command, or a script, that met a value of another type than ours."""
    return isinstance(error, Exception) and "WRONGTYPE" in str(error)


def type_probes(arguments: tuple[object, ...]) -> dict[str, tuple[str, ...]]:
    """Return our keys among a command's arguments, each with a command that fails if its value is of another type.

    Our Redis users have no right to use the command TYPE.
    """
    texts = (argument.decode(errors="replace") if isinstance(argument, bytes) else argument for argument in arguments)
    keys = (
        text for text in texts if isinstance(text, str) and re.fullmatch(r"riqx:\{[^\0]{1,500}\}[\w:.-]{0,200}", text)
    )
    return {key: _type_probe(key) for key in keys}


def _type_probe(key: str) -> tuple[str, ...]:
    if re.search(r":(actors|versions|log:\d+)$", key):
        return ("XREVRANGE", key, "+", "-", "COUNT", "0")
    if re.search(r"\}:(learner|leader|rank:\d+)$|:(weights|actor):\w+(:\w+)?$|:report$", key):
        return ("GET", key)
    return ("HGET", key, "run_id")


def explain_type(keys: Iterable[str]) -> str:
    """Explain that these keys hold values of another type than ours."""
    return (
        f"the Redis key {' and '.join(keys)} holds another type of value than this program writes there, so another "
        "program has written it: delete it with redis-cli, and start again what has stopped"
    )


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
        "CVE-2025-67733",
        "Valkey",
        ((7, 2, 12), (8, 0, 7), (8, 1, 6), (9, 0, 3)),
        "a user's script can forge the replies that others get",
    ),
    Hole("CVE-2026-27623", "Valkey", ((9, 0, 3),), "whoever reaches the port can end the server", since=(9, 0, 0)),
    Hole(
        "GHSA-fq2f-crmw-q97r",
        "Valkey",
        ((9, 1, 2),),
        "whoever reaches the port can take the server over",
        since=(9, 1, 0),
    ),
    Hole(
        "GHSA-f4q9-j22m-xqq9",
        "Valkey",
        ((9, 1, 3),),
        "a user who may PUBLISH, as none of ours may, can harm nodes",
        since=(9, 1, 0),
        where="in a cluster",
    ),
    Hole(
        "CVE-2026-21863",
        "Valkey",
        ((7, 2, 12), (8, 0, 7), (8, 1, 6), (9, 0, 3)),
        "whoever reaches the cluster's bus can end the server",
        where="in a cluster",
    ),
    Hole(
        "CVE-2026-81934",
        "Redis",
        ((6, 2, 24), (7, 2, 16), (7, 4, 11), (8, 2, 9), (8, 4, 6), (8, 6, 6), (8, 8, 2), (8, 10, 1)),
        "whoever reaches the port can take the server over",
        where="with TLS",
    ),
)


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

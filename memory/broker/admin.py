"""What concerns a server as a whole: its memory, its append-only file, the keys that it holds."""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from rainbow_iqn_apex.common.text import counted
from rainbow_iqn_apex.memory.broker.connection import Aside, Client, ResponseError
from rainbow_iqn_apex.memory.broker.keys import Keys

_OF_A_RUN = re.compile(  # keys behind a tag; other names may begin with that, and whatever follows there
    rb"([\w-]{1,64}):(?:inference:|evaluation:)?"
    rb"(?:versions|weights:[01]|actors|learner:report|actor:(?:film:\w+|secret)|"
    rb"(?:log|state|actor):\d+(?::report|:view)?)"
)

_EVERYWHERE = frozenset((b"*", b"0.0.0.0", b"::", b"::*"))  # in the setting `bind`


class MemoryUse(NamedTuple):
    """Bytes of memory of the Redis server, or of all together, and the server's host."""

    host: str
    used: int
    ours: int  # of `used`: what runs of a name hold, as Redis estimates it
    limit: int  # maxmemory; 0: none
    machine: int  # all memory of its machine
    file: bool  # whether it keeps an append-only file
    evicting: str  # the policy by which a full server drops any keys; empty: it does not


def memory_use(client: Client, name: str, shards: int = 1) -> MemoryUse:
    """Return the bytes of memory that the servers of a run use, and may use: of a cluster, those that hold its keys."""
    places = Keys(name, "", shards=shards).everywhere()
    told: list[Any] = [client.of(keys.run).info() for keys in places]
    infos = list({info["run_id"]: info for info in told}.values())
    host = str(client.connection_pool.connection_kwargs.get("host"))
    sizes: list[Any] = [client.memory_usage(key) for keys in places for key in keys_from(client, keys.tag)]
    limits = [info["maxmemory"] for info in infos]
    policies = {info["maxmemory_policy"] for info in infos if info["maxmemory"]}
    return MemoryUse(
        host,
        sum(info["used_memory"] for info in infos),
        sum(filter(None, sizes)),
        sum(limits) if all(limits) else 0,
        sum(info["total_system_memory"] for info in infos),
        any(info["aof_enabled"] == 1 for info in infos),
        next((policy for policy in policies if policy.startswith("allkeys")), ""),
    )


def unsafe_settings(client: Client) -> list[str]:
    """Return a line for each kind of setting by which servers lose a run's experience, or open it to strangers."""
    lines = []
    asks = client.connection_pool.connection_kwargs.get("password") is not None
    servers = client.servers()
    if not all(server.info("persistence")["aof_enabled"] for server in servers):
        lines.append(
            "keeps no append-only file, so the run's experience is lost when the server ends: start it with "
            "redis_rainbow_6379.conf, which it does not read from a folder with [, * or ? in its name"
        )
    if not asks and any(map(_takes_strangers, servers)):
        lines.append(
            "listens on all addresses and asks for no password: bind it to 127.0.0.1, or make users (docs/access.md)"
        )
    return [f"{client.where}: the Redis server {line}" for line in lines]


def _takes_strangers(server: Client) -> bool:
    """Return whether a server that asks for no password listens on all addresses, and serves who comes there.

    `protected-mode` refuses clients of other machines; in Redis 6.2 only where `bind` is not set.
    """
    with suppress(ResponseError):  # a user without the right to ask has been given by somebody who has made users
        addresses, protected = (server.once("CONFIG", "GET", name)[1] for name in ("bind", "protected-mode"))
        is_everywhere = not _EVERYWHERE.isdisjoint(address.lstrip(b"-") for address in addresses.split() or [b"*"])
        heeds_bind = server.info("server")["redis_version"].startswith("6.")
        return is_everywhere and not (protected == b"yes" and not (heeds_bind and addresses))
    return False


def rewrite_file(client: Client) -> None:
    """Let each server that keeps an append-only file write it anew from its memory.

    A crash may leave half a transaction at the end of the file. A server that starts reads the file up to that half,
    and appends behind it. At the next start, the server would take what was appended for a part of the transaction.
    This is a precaution: if the server refuses, mostly for lack of memory, only a line is printed.
    """
    for server in client.servers():
        try:
            if server.info("persistence")["aof_enabled"] == 1:
                server.once("BGREWRITEAOF")  # without another connection to ask again, which may not be had then
        except ResponseError as error:
            if "in progress" not in str(error):
                print(f"The Redis server does not write its append-only file anew: {error}", flush=True)


def forget_run(client: Client, name: str, run_id: str) -> None:
    """Delete what an abandoned run of this name has left under its id, in however many shards, and nothing else."""
    beginning = Keys(name, "").run.removesuffix("}")
    own = re.compile(rb"(/\d+(\.\d+)?)?}:%b:.*" % re.escape(run_id.encode()), re.DOTALL)
    for key in keys_from(client, beginning):
        if own.fullmatch(key[len(beginning.encode()) :]):
            client.unlink(key)


def forget_strays(client: Client, keys: Keys) -> None:
    """Delete what runs of other ids have left in the places of this one, as a learner killed while it took over.

    A shard's place may be that of a run whose name ends like a shard's: then nothing is deleted there.
    """
    found = 0
    for place in keys.everywhere():
        beginning = f"{place.tag}:"
        if place.shard is None or not client.exists(place.tag):
            for key in keys_from(client, beginning):
                stray = _OF_A_RUN.fullmatch(key[len(beginning.encode()) :])
                found += client.unlink(key) if stray and stray[1] != keys.run_id.encode() else 0
    if found:
        print(f"Deleted {counted(found, 'key')} of runs {keys.name!r} that had not been deleted whole", flush=True)


def keys_from(client: Client | Aside, beginning: str) -> Iterator[bytes]:
    """Yield all keys with this beginning, of all servers."""
    escaped = "".join(f"\\{c}" if c in "*?[]^\\" else c for c in beginning)
    for server in client.servers():
        yield from server.scan_iter(match=f"{escaped}*", count=1000)

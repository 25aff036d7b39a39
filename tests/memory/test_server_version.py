"""What programs report of a server: known holes of its version, and settings that lose or open a run."""

import re
from contextlib import closing
from pathlib import Path

import pytest

from rainbow_iqn_apex.memory.broker.access import Access
from rainbow_iqn_apex.memory.broker.admin import unsafe_settings
from rainbow_iqn_apex.memory.broker.connection import connect
from rainbow_iqn_apex.memory.broker.server_errors import unpatched
from tests.conftest import RedisServer
from tests.processes import run
from tests.servers import SERVERS

SCRIPTS, REPLICAS = "CVE-2025-49844", "CVE-2026-23631"
HOLES = {  # by server and version, without TLS, and the release to take
    "Redis 6.2.14": ([SCRIPTS], "6.2.20"),
    "Redis 6.2.20": ([], ""),
    "Redis 7.0.15": ([SCRIPTS, REPLICAS], "8.6.3"),
    "Redis 7.2.10": ([SCRIPTS, REPLICAS], "7.2.14"),
    "Redis 7.4.8": ([REPLICAS], "7.4.9"),
    "Redis 8.0.4": ([REPLICAS], "8.6.3"),
    "Redis 8.1.0": ([SCRIPTS, REPLICAS], "8.6.3"),
    "Redis 8.2.6": ([], ""),
    "Redis 8.10.0": ([], ""),
    "Redis 9.0.0": ([], ""),
    "Redis unstable": ([SCRIPTS, REPLICAS], "8.6.3"),
    "Valkey 7.2.10": ([SCRIPTS, REPLICAS, "CVE-2025-67733"], "7.2.13"),
    "Valkey 8.1.6": ([REPLICAS], "8.1.7"),
    "Valkey 9.0.2": ([REPLICAS, "CVE-2025-67733", "CVE-2026-27623"], "9.0.4"),
    "Valkey 9.0.4": ([], ""),
    "Valkey 9.1.0": (["GHSA-fq2f-crmw-q97r"], "9.1.2"),
    "Valkey 9.1.2": ([], ""),
    "Valkey 9.2.0": ([], ""),
}
CLUSTERS = {
    "Valkey 9.0.2": ([REPLICAS, "CVE-2025-67733", "CVE-2026-27623", "CVE-2026-21863"], "9.0.4"),
    "Valkey 9.1.2": (["GHSA-f4q9-j22m-xqq9"], "9.1.3"),
    "Valkey 9.1.3": ([], ""),
}
TLS = {"Redis 7.2.15": (["CVE-2026-81934"], "7.2.16"), "Redis 8.10.1": ([], ""), "Valkey 9.1.2": ([], "")}


@pytest.mark.parametrize(
    ("name", "mode", "tls"),
    [
        *((name, "standalone", False) for name in HOLES),
        *((name, "cluster", False) for name in CLUSTERS),
        *((name, "standalone", True) for name in TLS),
    ],
)
def test_versions_with_known_holes_are_named(name: str, mode: str, tls: bool) -> None:
    # Mutations: forget `since`, or who is reached; take the oldest of the releases to take.
    kind, version = name.split()
    own = {"redis_version": "7.2.4", "server_mode": mode, "valkey_version": version}
    line = unpatched({"redis_version": version, "redis_mode": mode} if kind == "Redis" else own, tls=tls)
    holes, release = (CLUSTERS if mode == "cluster" else TLS if tls else HOLES)[name]
    found = re.findall(r"((?:CVE|GHSA)-[\w-]+), by which ", line or "")
    assert found == holes and bool(line) == bool(holes)
    assert not line or (line.startswith(f"{name} lacks the fix of ") and f": take {kind} {release} or newer, " in line)
    assert not line or ("unless its distribution has added the fix" in line and "\n" not in line)


@pytest.mark.redis
@pytest.mark.parametrize("name", SERVERS)
def test_a_program_names_the_server_once(name: str, tmp_path: Path) -> None:
    # Mutation: `connect` that prints to the standard output, which is JSON here.
    with closing(RedisServer(tmp_path, program=SERVERS[name])) as server:
        server.start()
        code, out, errors = run("run_status.py", "--json", "--port-redis", server.port)
    assert (code, out.count("\n")) == (0, 1) and out.startswith("{")
    told = f"--host-redis localhost --port-redis {server.port}: {name} lacks the fix of "
    kind, version = name.split()
    fixed = not unpatched({f"{kind.lower()}_version": version})
    assert [line[: len(told)] for line in errors.splitlines()] == ([] if fixed else [told])


@pytest.mark.redis
@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"appendonly": "yes"}, []),
        ({}, ["keeps no append-only file"]),
        ({"appendonly": "yes", "bind": "*", "protected-mode": "no"}, ["listens on all addresses"]),
        ({"bind": "0.0.0.0", "protected-mode": "no"}, ["keeps no append-only file", "listens on all addresses"]),
        ({"appendonly": "yes", "bind": "*"}, ["6: listens on all addresses"]),
        ({"appendonly": "yes", "bind": "0.0.0.0", "requirepass": "word"}, []),
    ],
)
def test_settings_that_lose_or_open_a_run_are_reported(
    tmp_path: Path, redis_program: str, settings: dict[str, object], told: list[str]
) -> None:
    """Lines after "6: " are those of Redis 6 alone, whose protected mode refuses nobody once `bind` is set."""
    # Mutations: ask for no protected mode; ask for it alone.
    access = Access(password="word" if "requirepass" in settings else None)
    with closing(RedisServer(tmp_path, program=redis_program, more=settings)) as server:
        server.start()
        with closing(connect("127.0.0.1", server.port, access=access)) as client:
            lines = unsafe_settings(client)
            is_6 = str(client.info("server")["redis_version"]).startswith("6.")
            told = [words.removeprefix("6: ") for words in told if is_6 or not words.startswith("6: ")]
            if not access.password:  # as our users, who come with a password, a user may lack the right to ask
                client.execute_command("ACL", "SETUSER", "default", "-config")
                assert len(unsafe_settings(client)) == sum("file" in words for words in told)
    begin = f"--host-redis 127.0.0.1 --port-redis {server.port}: the Redis server "
    assert [line[: len(begin + words)] for line, words in zip(lines, told, strict=True)] == [begin + w for w in told]

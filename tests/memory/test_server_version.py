"""What programs report of a server: known holes of its version, and settings that lose or open a run."""

from contextlib import closing
from pathlib import Path

import pytest

from rainbow_iqn_apex.memory.broker.access import Access
from rainbow_iqn_apex.memory.broker.connection import connect
from rainbow_iqn_apex.memory.broker.server_version import unpatched
from rainbow_iqn_apex.memory.broker.upkeep import unsafe_settings
from tests.conftest import RedisServer
from tests.processes import run
from tests.servers import SERVERS

LACK_THE_FIX = {"Redis": "6.2.14 6.2.19 7.0.15 7.2.10 7.4.5 8.0.3 8.1.0 8.2.1 unstable", "Valkey": "7.2.10 8.0.5 8.1.3"}
HAVE_THE_FIX = {
    "Redis": "6.2.20 6.2.21 7.2.11 7.4.6 8.0.4 8.2.2 8.10.0 9.0.0",
    "Valkey": "7.2.11 8.0.6 8.1.4 9.0.0 9.1.2",
}


@pytest.mark.parametrize("name", ["Redis", "Valkey"])
def test_versions_without_the_fix_are_named(name: str) -> None:
    def line_of(version: str) -> str | None:
        valkey = {"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": version}
        return unpatched({"redis_version": version} if name == "Redis" else valkey)

    for version in LACK_THE_FIX[name].split():
        line = line_of(version)
        assert line and line.startswith(f"{name} {version} lacks the fix of CVE-2025-49844, ") and "\n" not in line
    assert [line_of(version) for version in HAVE_THE_FIX[name].split() if line_of(version)] == []


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
        ({"appendonly": "yes", "bind": "*"}, ["listens on all addresses"]),
        ({"bind": "0.0.0.0"}, ["keeps no append-only file", "listens on all addresses"]),
        ({"appendonly": "yes", "bind": "0.0.0.0", "requirepass": "word"}, []),
    ],
)
def test_settings_that_lose_or_open_a_run_are_reported(
    tmp_path: Path, redis_program: str, settings: dict[str, object], told: list[str]
) -> None:
    access = Access(password="word" if "requirepass" in settings else None)
    with closing(RedisServer(tmp_path, program=redis_program, more=settings)) as server:
        server.start()
        with closing(connect("127.0.0.1", server.port, access=access)) as client:
            lines = unsafe_settings(client)
            if not access.password:  # as our users, who come with a password, a user may lack the right to ask
                client.execute_command("ACL", "SETUSER", "default", "-config")
                assert len(unsafe_settings(client)) == sum("file" in words for words in told)
    begin = f"--host-redis 127.0.0.1 --port-redis {server.port}: the Redis server "
    assert [line[: len(begin + words)] for line, words in zip(lines, told, strict=True)] == [begin + w for w in told]

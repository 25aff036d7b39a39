"""A server whose version lacks the fix of a known hole is named in one line, by every program that connects."""

from contextlib import closing
from pathlib import Path

import pytest

from rainbow_iqn_apex.memory.broker.server_version import unpatched
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

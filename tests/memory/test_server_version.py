"""A server whose version lacks the fix of a known hole is named in one line, by every program that connects."""

from contextlib import closing
from pathlib import Path

import pytest

from rainbow_iqn_apex.memory.broker.server_version import unpatched
from tests.conftest import RedisServer
from tests.processes import run
from tests.servers import SERVERS


@pytest.mark.parametrize(
    ("version", "lacks"),
    [
        ("6.2.14", True), ("6.2.19", True), ("6.2.20", False), ("6.2.21", False),
        ("7.0.15", True), ("7.2.10", True), ("7.2.11", False), ("7.4.5", True), ("7.4.6", False),
        ("8.0.3", True), ("8.0.4", False), ("8.1.0", True), ("8.2.1", True), ("8.2.2", False), ("8.10.0", False),
        ("9.0.0", False), ("unstable", True),
    ],
)  # fmt: skip
def test_versions_of_redis(version: str, lacks: bool) -> None:
    line = unpatched({"redis_version": version})
    assert bool(line) == lacks
    assert line is None or (line.startswith(f"Redis {version} lacks the fix of CVE-2025-49844, ") and "\n" not in line)


@pytest.mark.parametrize(
    ("version", "lacks"),
    [("7.2.10", True), ("7.2.11", False), ("8.0.5", True), ("8.0.6", False), ("8.1.3", True), ("8.1.4", False),
     ("9.0.0", False), ("9.1.2", False)],
)  # fmt: skip
def test_versions_of_valkey(version: str, lacks: bool) -> None:
    line = unpatched({"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": version})
    assert bool(line) == lacks
    assert line is None or line.startswith(f"Valkey {version} ")


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

"""Whole runs with a server that asks for TLS, certificates, users and passwords; and how programs are refused."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import redis

from tests.conftest import RedisServer
from tests.memory.test_redis_users import make_users
from tests.processes import run
from tests.small import SHORT_CHAIN
from tests.system import LEARNER, System
from tests.tls import Authority, TlsServer

pytestmark = pytest.mark.redis
OPTIONS = [*SHORT_CHAIN, *"--learn-start 900 --nb-env-per-actor 3 --evaluation-interval 1000".split()]
LOCKSTEP = (*OPTIONS, "--T-max", "1800")


class Guarded(NamedTuple):
    """The server behind TLS, and the variables with which learner and actor get in."""

    server: RedisServer
    insider: redis.Redis
    environment: dict[str, dict[str, str]]
    authority: Authority

    @property
    def secrets(self) -> set[bytes]:
        """The passwords, and a line of each client's key."""
        keys = [Path(told["REDIS_CLIENT_KEY"]).read_bytes().splitlines()[2] for told in self.environment.values()]
        return {*keys, *(told["REDIS_PASSWORD"].encode() for told in self.environment.values())}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    users = make_users(tmp_path / "access")
    file = tmp_path / "access" / "users.acl"
    with file.open("a") as more:
        more.write("user insider on nopass ~* &* +@all\n")
    server = RedisServer(tmp_path, append_only=True, more={"aclfile": file})
    server.start()
    authority = Authority(tmp_path / "certificates")
    context = authority.wants_clients(authority.server("localhost"))
    with ExitStack() as stack:
        stack.callback(server.stop)
        tls = stack.enter_context(TlsServer(server.port, context))
        insider = stack.enter_context(redis.Redis(port=server.port, username="insider", password="-", protocol=2))
        environment = {
            user: {
                **variables,
                **authority.client(user),
                "REDIS_URL": f"rediss://localhost:{tls.port}/3",
                "REDIS_CA_CERTS": authority.file,
            }
            for user, variables in users.items()
            if user != "admin"
        }
        yield Guarded(server, insider, environment, authority)


def command_lines() -> bytes:
    """What everybody on this machine can read."""
    found = []
    for process in psutil.process_iter():
        try:
            found += process.cmdline()
        except psutil.Error:
            continue
    return "\n".join(found).encode()


def everything_said(guarded: Guarded, folder: Path) -> bytes:
    """Logs, scores, plots and snapshots of a run, the server's log and file, and its keys with what they hold."""
    files = [path for path in folder.rglob("*") if path.is_file()] + [guarded.server.log]
    texts = [path.read_bytes() for path in [*files, guarded.server.folder / "redis.log"]]
    assert len(files) > 5
    with redis.Redis(port=guarded.server.port, username="insider", password="-", db=3, protocol=2) as client:
        keys: Any = client.keys("*")
        assert len({key.split(b":")[2] for key in keys if b":log:" in key or b":weights:" in key}) == 1, "one run"
        return b"\n".join([*texts, *keys, *(client.dump(key) or b"" for key in keys)])


def check_no_secret(guarded: Guarded, said: bytes) -> None:
    assert told(guarded, said) == set()
    assert all(told(guarded, said + secret) == {secret} for secret in guarded.secrets)


def told(guarded: Guarded, said: bytes) -> set[bytes]:
    return {secret for secret in guarded.secrets if secret in said}


def refused(guarded: Guarded) -> Any:
    return guarded.insider.execute_command("ACL", "LOG")  # type: ignore[no-untyped-call]


@pytest.mark.slow
def test_lockstep_with_kills_ends_as_a_run_in_the_open(
    guarded: Guarded, redis_port: int, run_name: str, tmp_path: Path
) -> None:
    results = {}
    for case in ("guarded", "open"):
        more: dict[str, Any] = {"environment": guarded.environment} if case == "guarded" else {}
        port = 0 if case == "guarded" else redis_port
        with System(port, run_name, tmp_path / case, list(LOCKSTEP), actors=2, **more) as system:
            if case == "guarded":
                check_no_secret(guarded, command_lines())
                for times, who in enumerate(("0", LEARNER), 1):
                    system.wait_for(LEARNER, "] T = ", times)
                    assert system.learner.exit_code is None
                    system.restart(who, signal.SIGKILL)
            results[case] = system.finish()._replace(values=[])  # a learner that resumes may print them again
    assert results["guarded"] == results["open"]
    assert refused(guarded) == []
    check_no_secret(guarded, everything_said(guarded, tmp_path / "guarded"))


def refusal(program: str, environment: dict[str, str], *options: str) -> str:
    actor = "0" if "actor" in program else "-1"
    code, out, errors = run(program, "--id-actor", actor, *options, seconds=40, environment=os.environ | environment)
    assert code == 2, (out, errors)
    assert all(line.startswith("Budget: ") for line in out.splitlines()), out
    assert errors.count("\n") == 1, errors
    assert errors.startswith(f"{program}: error: ")
    assert environment.get("REDIS_PASSWORD", "\0") not in errors
    return errors


def test_programs_are_refused_in_one_line(guarded: Guarded, tmp_path: Path) -> None:
    learner, actor = guarded.environment[LEARNER], guarded.environment["actor"]
    folder = ("--path-to-results", str(tmp_path / "results"))
    wrong = {"REDIS_PASSWORD": "wrong-password-of-nobody"}
    assert "REDIS_USERNAME and REDIS_PASSWORD" in refusal("launch_learner.py", learner | wrong)
    assert "lacks a right" in refusal("launch_learner.py", actor, *folder, "--memory-capacity", "80000")
    expired = guarded.authority.client("expired", expired=True)
    assert "REDIS_CLIENT_CERT" in refusal("launch_actor.py", actor | expired)

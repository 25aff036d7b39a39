"""A real server that is busy, full or a replica: commands and scripts wait until it is well, or end with one line."""

import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
import redis

from rainbow_iqn_apex.common import waiting
from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.memory.broker import connection
from rainbow_iqn_apex.memory.broker.connection import Client, connect
from rainbow_iqn_apex.memory.broker.server_errors import explain_trouble, trouble_of
from tests.chaos.proxy import Proxy
from tests.conftest import RedisServer
from tests.deadline import Clock, wait_until
from tests.memory.links import after
from tests.memory.test_tls import over_tls
from tests.processes import clean_environment
from tests.small import TINY
from tests.system import LEARNER, Run
from tests.tls import Authority, TlsServer

pytestmark = pytest.mark.redis
Trouble = tuple[Callable[[redis.Redis], object], Callable[[redis.Redis], object], str]
TROUBLES: dict[str, Trouble] = {
    "full": (
        lambda client: client.config_set("maxmemory", 1),
        lambda client: client.config_set("maxmemory", 0),
        "has no room: raise its maxmemory",
    ),
    "a replica": (
        lambda client: client.replicaof("127.0.0.1", "1"),
        lambda client: client.replicaof("no", "one"),
        "is a replica, which takes no writes: name its master",
    ),
    "out of connections": (
        lambda client: (client.config_set("maxclients", 1), client.client_kill_filter(skipme=True)),
        lambda client: client.config_set("maxclients", 100),
        r"takes no more connections \(max number of clients reached\): raise its maxclients",
    ),
}


@contextmanager
def plain(server: RedisServer) -> Iterator[redis.Redis]:
    with redis.Redis(port=server.port, protocol=2) as client:
        yield client


def commands(client: Client) -> list[Callable[[], object]]:
    """A command, and a script, which repeats the error within its own."""
    return [lambda: client.set("key", b"x"), lambda: client.eval("return redis.call('SET', KEYS[1], 1)", 1, "key")]


@pytest.mark.parametrize("name", TROUBLES)
def test_a_server_that_takes_no_writes(
    own_server: RedisServer, own_client: Client, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # Mutation: a trouble that is looked for at the beginning of an error alone.
    begin, end, words = TROUBLES[name]
    with plain(own_server) as insider:
        for command in commands(own_client):
            begin(insider)
            with after(0.3, lambda: end(insider)):
                assert command()
        begin(insider)
        monkeypatch.setattr(connection, "AWAY_S", 0.2)
        for command in commands(own_client):
            with pytest.raises(RunError, match=words):
                command()


@pytest.mark.parametrize("size", [1_200_000, 30_000_000])  # the latter is more than the buffers on the way hold
def test_a_server_that_takes_no_large_value(
    own_server: RedisServer,
    own_client: Client,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    size: int,
) -> None:
    # Mutations: look for no reason where a write fails; leave the reason out of the line that waits.
    words = "takes no value of this size (invalid bulk length): raise its proto-max-bulk-len"
    monkeypatch.setattr(waiting, "INTERVAL_S", 0.1)
    with plain(own_server) as insider:
        insider.config_set("proto-max-bulk-len", 1 << 20)
        with ThreadPoolExecutor() as pool:
            written = pool.submit(own_client.set, "key", bytes(size))
            line = f"Waiting for the Redis server, which {words}"
            wait_until(lambda: line in capsys.readouterr().out, "the line")
            insider.config_set("proto-max-bulk-len", 1 << 29)
            assert written.result()
        insider.config_set("proto-max-bulk-len", 1 << 20)
        monkeypatch.setattr(connection, "AWAY_S", 2.0)
        with pytest.raises(RunError, match=re.escape(words)):
            own_client.set("key", bytes(size))


def test_a_server_that_is_busy(own_server: RedisServer, own_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: "BUSY Redis", which a Valkey does not write.
    with plain(own_server) as insider, plain(own_server) as looping:
        insider.config_set("lua-time-limit", 20)

        def loop() -> None:
            with pytest.raises(redis.ResponseError, match="killed by user"):
                looping.eval("while true do end", 0)

        def is_busy() -> bool:
            try:
                insider.get("key")
            except redis.ResponseError as error:
                assert "is busy with another client's script" in explain_trouble(error)
                return True
            return False

        for again in (False, True):
            thread = threading.Thread(target=loop)
            thread.start()
            wait_until(is_busy, "the server to be busy")
            if again:
                monkeypatch.setattr(connection, "AWAY_S", 2.0)
                with pytest.raises(RunError, match="is busy with another client's script"):
                    own_client.set("key", b"x")
                with pytest.raises(UserError, match="the server is busy with another client's script") as refused:
                    connect("127.0.0.1", own_server.port)
                assert "\n" not in str(refused.value)
                insider.script_kill()
            else:
                with after(0.3, insider.script_kill):
                    assert own_client.set("key", b"x")
            thread.join()


def test_a_stop_gets_past_connections_that_lead_nowhere(redis_port: int, run_name: str) -> None:
    """As after a move of the server's address: all open connections are silent, and new ones work."""
    # Mutations: keep the idle connections after a time-out; wait for a silent one until the command's time is over.
    stop = threading.Event()
    with Proxy(redis_port) as proxy, closing(connect("127.0.0.1", proxy.port, stop)) as client:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: client.xread({run_name: "$"}, block=300), range(4)))
        assert len(proxy.connections) >= 4
        proxy.drop(0, silent=True)
        clock = Clock()
        with after(0.5, stop.set):
            assert client.set(run_name, b"x")
        assert client.get(run_name) == b"x"
        assert clock.seconds() < 6


def test_a_connection_that_gives_up_at_once_has_time_again_after_replies_of_a_limited_size(
    own_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: let the time that the limited replies have go on afterwards.
    monkeypatch.setattr(connection, "AWAY_S", 0.1)
    with own_client.aside() as aside:
        with aside.replies_up_to(1000):
            assert aside.ping()
        time.sleep(0.2)
        assert aside.ping()


_SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
static int sync_with(const char *name, int fd) {
    if (access(getenv("SYNC_FAILS"), F_OK) == 0) { errno = EIO; return -1; }
    return ((int (*)(int))dlsym(RTLD_NEXT, name))(fd);
}
int fsync(int fd) { return sync_with("fsync", fd); }
int fdatasync(int fd) { return sync_with("fdatasync", fd); }
"""


@pytest.fixture
def failing_disk(tmp_path: Path, redis_program: str) -> Iterator[tuple[RedisServer, Path]]:
    """A server that cannot sync a file as long as another one, whose path is returned, exists."""
    if not (compiler := shutil.which("cc")):
        pytest.skip("needs a C compiler, for a library by which fsync fails")
    library, fails = tmp_path / "fails.so", tmp_path / "fails"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-xc", "-", "-o", library, "-ldl"], input=_SHIM, text=True, check=True
    )
    server = RedisServer(tmp_path, append_only=True, more={"appendfsync": "everysec"}, program=redis_program)
    server.environment = clean_environment() | {"LD_PRELOAD": str(library), "SYNC_FAILS": str(fails)}
    with closing(server):
        server.start()
        yield server, fails


def fail(server: RedisServer, fails: Path) -> None:
    """Let an fsync fail, after which the server refuses to write."""
    fails.touch()

    def refuses() -> bool:
        with plain(server) as insider, suppress(redis.ResponseError):
            return not insider.set("key", b"x")
        return True

    wait_until(refuses, "a failed fsync (unless the server cannot load libraries)")


def test_after_a_failed_fsync_a_learner_has_the_file_written_again(
    failing_disk: tuple[RedisServer, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Mutations: let every process ask for it; ask once; let a connection over TLS begin with an accepted PING.
    server, fails = failing_disk
    fail(server, fails)
    ours = Authority(tmp_path / "ours")
    with (
        closing(connect("127.0.0.1", server.port)) as actor,
        TlsServer(server.port, ours.server("localhost")) as tls,
        over_tls(tls.port, REDIS_CA_CERTS=ours.file) as learner,
    ):
        if learner.info("server")["redis_version"].startswith("7.0."):
            pytest.skip("Redis 7.0 refuses to write until it is started again")
        learner.away.next_repair = 0.0  # as `run_learner` has it
        again = "The Redis server could not append to its file and writes it again"
        monkeypatch.setattr(connection, "AWAY_S", 0.6)
        for client in (actor, learner):  # the disk still fails
            with pytest.raises(RunError, match=r"cannot append to its file \(Input/output error\): make room") as error:
                client.set("key", b"x")
            assert "\n" not in str(error.value)
            client.away.given_up = False
        (line,) = capsys.readouterr().out.splitlines()  # some servers refuse at once to write the file again
        assert line == again or line.startswith("The Redis server cannot write its file again: Can't execute an AOF")
        fails.unlink()
        with pytest.raises(RunError, match="cannot append to its file"):
            actor.set("key", b"x")
        monkeypatch.setattr(connection, "AWAY_S", 30.0)
        monkeypatch.setattr(connection, "_REPAIR_S", 0.5)
        learner.away.next_repair = 0.0
        actor.away.given_up = False
        assert learner.set("key", b"y") and actor.set("key", b"z")
        assert capsys.readouterr().out.startswith(again)


@pytest.mark.slow
def test_a_learner_that_starts_after_a_failed_fsync_trains(
    failing_disk: tuple[RedisServer, Path], tmp_path: Path
) -> None:
    server, fails = failing_disk
    with plain(server) as insider:
        if insider.info("server")["redis_version"].startswith("7.0."):
            pytest.skip("Redis 7.0 refuses to write until it is started again")
    fail(server, fails)
    fails.unlink()
    options = [*TINY, *"--env chain --game chain --learn-start 400 --memory-capacity 400 --T-max 800".split()]
    with Run(server.port, "chain", tmp_path / "results", options) as run:
        learner, actor = run.start(LEARNER), run.start("0")
        assert (learner.finish(120), actor.finish(60)) == (0, 0)
        assert "The Redis server could not append to its file and writes it again" in learner.output


@pytest.mark.parametrize("text", ["BUSYGROUP Consumer Group name already exists", "ERR no such key", "NOASK"])
def test_other_errors_are_no_trouble(text: str) -> None:
    error = redis.ResponseError(text)
    assert trouble_of(error) is None
    assert explain_trouble(error) == text

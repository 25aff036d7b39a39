"""Which Redis server the start script uses, starts or refuses."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from rainbow_iqn_apex.common.errors import RunError, Stopped, UserError
from rainbow_iqn_apex.memory.broker.access import OPEN, Access, Server
from rainbow_iqn_apex.programs import redis_program
from rainbow_iqn_apex.programs.process import StopRequest
from rainbow_iqn_apex.programs.redis_program import CONFIGURATION, find_program, settings_of
from rainbow_iqn_apex.programs.start import redis_server
from rainbow_iqn_apex.programs.start.redis_server import Answer, RedisServer, ask, check_port, take_back, uses_running
from tests.deadline import wait_until
from tests.memory.test_transport import Stranger
from tests.processes import Processes, clean_environment
from tests.servers import BUNDLED, SERVERS
from tests.start_script import ROOT, free_port, is_listening


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        (b"HTTP/1.0 400 Bad Request\r\n\r\n", Answer(listens=True)),
        (b"", Answer(listens=True)),
        (b"-NOAUTH Authentication required.\r\n-NOAUTH\r\n", Answer(listens=True, is_redis=True)),
        (b"-LOADING Redis is loading\r\n$9\r\n", Answer(listens=True, is_redis=True, is_loading=True)),
        (b"+PONG\r\n$30\r\n# Server\r\nprocess_id:77\r\n", Answer(listens=True, is_redis=True, process_id=77)),
        (b"+PONG\r\n-NOPERM info\r\n", Answer(listens=True, is_redis=True)),
    ],
)
def test_what_answers_is_recognised(reply: bytes, answer: Answer) -> None:
    with Stranger(reply) as server:
        assert ask("127.0.0.1", server.port) == answer


def test_a_port_that_something_has_is_refused(tmp_path: Path) -> None:
    check_port("localhost", 7000, Answer(), tmp_path)
    with pytest.raises(UserError, match=r"a Redis server is already at localhost:.*; --use-running-redis uses it, --p"):
        check_port("localhost", free_port(), Answer(listens=True, is_redis=True), tmp_path)
    with pytest.raises(UserError, match="port 7000 of localhost is taken by something that is not Redis"):
        check_port("localhost", 7000, Answer(listens=True), tmp_path)
    for begun in ("appendonlydir/redis_7000.aof.manifest", "redis_7001.aof"):  # as Redis 7 and 6 write
        (tmp_path / begun).parent.mkdir(exist_ok=True)
        (tmp_path / begun).touch()
    for port in (7000, 7001):
        for is_redis in (True, False):
            with pytest.raises(UserError, match=f"port {port} of localhost is taken, and the run in .*; stop what lis"):
                check_port("localhost", port, Answer(listens=True, is_redis=is_redis), tmp_path)
        check_port("localhost", port, Answer(), tmp_path)


def test_a_server_that_does_not_tell_its_files_is_another_s(
    redis_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis.Redis, "config_get", lambda *_: {})  # as of a server without such a setting
    with pytest.raises(UserError, match="--use-running-redis uses it"):
        check_port("127.0.0.1", redis_port, Answer(listens=True, is_redis=True), tmp_path)


@pytest.mark.parametrize(
    ("server", "asked", "uses"),
    [
        (Server("localhost", 6379, OPEN), False, False),
        (Server("::1", 6379, OPEN), False, False),
        (Server("localhost", 6379, OPEN), True, True),
        (Server("127.0.0.2", 6379, OPEN), False, True),
        (Server("localhost", 6379, Access(password="word")), False, True),
        (Server("localhost", 6379, Access(told_by="REDIS_URL")), False, True),
    ],
)
def test_somebody_s_server_is_used_and_never_started(server: Server, asked: bool, uses: bool) -> None:
    assert uses_running(server, asked) == uses


def program(folder: Path, name: str, version: str) -> str:
    (folder / name).write_text(f"#!/bin/sh\necho 'Redis server {version} sha=0'\n")
    (folder / name).chmod(0o755)
    return str(folder / name)


def test_the_bundled_server_is_taken_and_one_in_its_place_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    program(tmp_path, "redis-server", "v=10.0.1")
    bundled = find_program()
    assert (bundled.path, bundled.is_bundled) == (BUNDLED, True)
    assert str(bundled) == f"{BUNDLED} ({next(iter(SERVERS))})"
    monkeypatch.setattr(redis_program, "bundled_program", lambda: None)
    (tmp_path / "redis-server").unlink()
    with pytest.raises(RunError, match=r"found no Redis server: install redis-server 6\.2 or newer"):
        find_program()
    valkey = program(tmp_path, "valkey-server", "v=7.2.4")
    for useless in ("v=6.0.16", "broken"):
        program(tmp_path, "redis-server", useless)
        assert find_program().path == valkey
    own = program(tmp_path, "redis-server", "v=10.0.1")
    assert str(find_program()) == f"{own} (Redis 10.0.1, this machine's own in the place of the bundled one)"


@pytest.fixture
def now() -> list[float]:
    """The time by the clock on which restarts depend, in seconds."""
    return [1000.0]


@pytest.fixture
def server(now: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    """A server in a folder that holds the configuration file."""
    (tmp_path / "redis_rainbow_6379.conf").write_text((ROOT / "redis_rainbow_6379.conf").read_text())
    monkeypatch.chdir(tmp_path)
    server = RedisServer("127.0.0.1", free_port(), tmp_path, StopRequest(), lambda: now[0])
    yield server
    server.stop(30)
    assert not server.process.runs()


@pytest.mark.parametrize("starts", ["the start script", "apex-redis"])
def test_settings_are_read_wherever_they_are(
    server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: Processes, starts: str
) -> None:
    # Mutation: name the file on the server's command line, where it counts as a pattern that matches nothing.
    folder = tmp_path / "a [b]* ?"
    folder.mkdir()
    path = folder / "redis_rainbow_6379.conf"
    path.write_text(CONFIGURATION.read_text())
    if starts == "the start script":
        monkeypatch.setattr(redis_server, "CONFIGURATION", path)
        server.start()
    else:
        module = "from pathlib import Path; from rainbow_iqn_apex.programs import redis_program as program"
        environment = clean_environment() | {"PYTHONPATH": str(ROOT)}
        words = ["-c", f"{module}; program.CONFIGURATION = Path({str(path)!r}); program.main()"]
        started = processes.start(*words, "--port-redis", server._port, cwd=folder, environment=environment)
        started.wait_until(lambda: is_listening(server._port), "the server")
    with redis.Redis(port=server._port, decode_responses=True) as client:
        found = client.config_get("appendonly", "bind", "maxmemory-policy")
        assert found == {"appendonly": "yes", "bind": "127.0.0.1 -::1", "maxmemory-policy": "noeviction"}


def kill(server: RedisServer) -> None:
    os.kill(server.process.process_id, signal.SIGKILL)
    wait_until(lambda: not server.process.runs(), "its end")


def test_a_server_that_dies_is_started_again_for_a_quarter_of_an_hour(
    server: RedisServer, now: list[float], capfd: pytest.CaptureFixture[str]
) -> None:
    # Mutations: try at once, or without an end; count pauses as work; let a start that fails end the run.
    server.start()
    began, times, command = now[0], [], server.process.command
    with pytest.raises(RunError, match=r"the Redis server has died; its last lines:\n(.*\n)*.*Ready to accept"):
        while now[0] < began + 3600:
            if server.process.runs():
                times.append(now[0] - began)
                kill(server)
            is_away = len(times) == 3 and now[0] < began + 400  # what it needs
            server.process.command = [*command, *["--maxmemory", "none"] * is_away]
            if is_away and now[0] > began + 200:
                server.process.command = ["/nowhere"]
            now[0] += 0.5
            server.keep_alive()
    printed = capfd.readouterr()
    assert printed.out.count("the Redis server has died and is started again") == 20
    assert times[:3] == [0, 0.5, 1.5]
    assert 400 < times[3] < 470 and 800 < now[0] - began < 1100
    assert "the Redis server could not start; its last lines:" in printed.err and "'/nowhere'" in printed.err


def test_no_two_servers_append_to_one_file(
    server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: lock nothing, as where a start script of another machine does not see this one's port.
    monkeypatch.setattr("rainbow_iqn_apex.programs.start.redis_server._LEAVES_S", 0.2)
    with pytest.raises(
        UserError, match="another start script, perhaps of another machine, keeps a Redis server's file"
    ):
        RedisServer("127.0.0.1", server._port, tmp_path, StopRequest())


def test_a_server_that_has_worked_for_a_minute_may_die_again(server: RedisServer, now: list[float]) -> None:
    server.start()
    for _ in range(25):
        now[0] += 60
        server.keep_alive()
        kill(server)
        server.keep_alive()
    assert server.process.runs()


def test_another_server_that_has_taken_the_port_is_never_taken_for_our_own(server: RedisServer, tmp_path: Path) -> None:
    # Mutation: _wait that takes any server that answers.
    server.start()
    (tmp_path / "other").mkdir()
    late = RedisServer("127.0.0.1", server._port, tmp_path / "other", StopRequest())
    with pytest.raises(RunError, match=r"could not start; its last lines:\n(.*\n)*.*Address already in use"):
        late.start()
    late.stop(30)
    assert server.process.runs()


def test_a_stop_while_it_starts_stops_it(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_server, "ask", lambda *_: Answer())
    server._stop._note()
    with pytest.raises(Stopped):
        server.start()
    server.stop(30)
    assert not is_listening(server._port)


def test_a_server_that_does_not_answer_is_told(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_server, "ask", lambda *_: Answer())
    monkeypatch.setattr(redis_server, "_ANSWERS_WITHIN_S", 0.3)
    with pytest.raises(RunError, match="does not answer"):
        server.start()


def test_a_server_that_reads_what_was_saved_is_waited_for(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    loading = Answer(listens=True, is_redis=True, is_loading=True)
    answers = iter([loading, loading])
    monkeypatch.setattr(redis_server, "ask", lambda host, port: next(answers, None) or ask(host, port))
    server.start()
    assert capfd.readouterr().out.count("Redis: reading what was saved") == 1


def test_a_server_that_was_left_behind_is_ended_by_sigint_alone(server: RedisServer) -> None:
    # Mutations: leave SIGTERM unblocked as it starts; block SIGINT, too.
    server.start()
    server._let_go()
    with redis.Redis(port=server._port) as client:
        client.set("kept", 1)
        process_id = client.info("server")["process_id"]
        os.kill(process_id, signal.SIGTERM)
        for _ in range(3):  # it looks ten times a second whether it was asked to stop
            client.blpop(["nothing"], 0.2)
    os.kill(process_id, signal.SIGINT)
    wait_until(lambda: not server.process.runs(), "its end")
    server.start()
    with redis.Redis(port=server._port) as client:
        assert client.get("kept") == b"1"


def test_only_a_server_that_was_left_behind_is_taken_back(
    server: RedisServer, tmp_path: Path, processes: Processes, capfd: pytest.CaptureFixture[str]
) -> None:
    # Mutations: `_keeps` that does not look at the folder, at the process file or at the names of connections; wait for
    # every client of the server, or for nobody.
    def take(results: Path) -> bool:
        """Take it back if it was left there; tell whether it has ended."""
        take_back("127.0.0.1", server._port, results, "mine", StopRequest())
        return not is_listening(server._port)

    server.start()
    with redis.Redis(port=server._port) as client:
        client.set("kept", 1)
    assert not take(tmp_path), "its script lives"
    with pytest.raises(
        UserError, match=r"the Redis server of .* is already at .*; stop what looks after it, or"
    ) as refused:
        check_port("127.0.0.1", server._port, ask("127.0.0.1", server._port), tmp_path)
    assert "--port-redis starts" not in str(refused.value)
    server._let_go()  # as the death of the script does
    assert not take(tmp_path / "results"), "of other results"
    with redis.Redis(port=server._port) as dashboard:
        dashboard.set("riqx:{other}:learner", 1)  # at work, too, with a run of its own
        assert take(tmp_path)
    wait_until(lambda: not server.process.runs(), "its end, a moment after its port is free")
    told = capfd.readouterr().out
    assert "taking back the server that a killed start script has left" in told and "waiting up to" not in told
    server.start()
    server._let_go()
    with redis.Redis(port=server._port) as client:
        client.set("riqx:{mine}:id:actor:0", 1, px=8000)
        assert take(tmp_path)
    wait_until(lambda: not server.process.runs(), "its end again")
    assert "waiting up to 60 sec for the processes of that script to save" in capfd.readouterr().out
    by_hand = processes.start(CONFIGURATION, *settings_of(server._port, tmp_path), program=BUNDLED)
    by_hand.wait_for("Ready to accept connections")
    assert not take(tmp_path), "who has started it looks after it"
    by_hand.terminate()
    by_hand.finish(30)
    server.start()
    with redis.Redis(port=server._port) as client:
        assert client.get("kept") == b"1"
    assert any(tmp_path.rglob(f"redis_{server._port}.aof*")), "it keeps its file in the results"
    assert not any(path.suffix == ".log" for path in tmp_path.iterdir())
    assert not (tmp_path / "results").exists(), "which the configuration names"

"""What a process says while it waits, and how long it waits for a server that is stopped, gone or full."""

import os
import re
import signal
import threading
import time
from contextlib import closing, suppress

import pytest

from rainbow_iqn_apex.common import waiting
from rainbow_iqn_apex.common.errors import RunError, Stopped
from rainbow_iqn_apex.common.loop_clock import LoopClock
from rainbow_iqn_apex.common.waiting import WaitReporter
from rainbow_iqn_apex.memory.broker import connection
from rainbow_iqn_apex.memory.broker.connection import BrokerError, Client, connect
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.scripts import Commit, Scripts
from tests.conftest import RedisServer
from tests.deadline import Clock, Deadline, wait_until
from tests.memory.links import after

TOKEN = b"token"
KEYS = Keys("run", "id")


def test_a_line_names_what_is_waited_for_when_it_is_due(capsys: pytest.CaptureFixture[str]) -> None:
    now = [50.0]
    waiting = WaitReporter("the moon", interval=5, clock=lambda: now[0])
    now[0] += 4.9
    waiting.check()
    assert capsys.readouterr().out == ""
    now[0] += 0.2
    for _ in range(3):
        waiting.check()
    assert capsys.readouterr().out == "Waiting for the moon (5 sec)\n"


def test_a_call_that_blocks_prints_a_line_every_interval(capsys: pytest.CaptureFixture[str]) -> None:
    # Mutations: a line for each thread; a line at every look; of nested waits the innermost.
    printed: dict[str, float] = {}
    is_in, leave = threading.Event(), threading.Event()

    def wait_too() -> None:
        with waiting.waiting("the moon"):
            is_in.set()
            leave.wait(60)

    with waiting.waiting("the moon"), waiting.waiting("its far side"):
        other = threading.Thread(target=wait_too)
        other.start()
        assert is_in.wait(60)
        now = time.monotonic()
        for second in range(26):
            printed = waiting.print_due(printed, now + second)
        leave.set()
        other.join()
    with waiting.waiting("the moon"):
        printed = waiting.print_due(printed, now + 26)
    assert capsys.readouterr().out == "Waiting for the moon (10 sec)\nWaiting for the moon (20 sec)\n"


@pytest.mark.redis
def test_a_server_that_is_stopped_is_waited_for_aloud(
    own_client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting, "INTERVAL_S", 0.2)
    pid = int(own_client.info("server")["process_id"])
    printed: list[str] = []

    def go_on() -> None:
        def has_printed() -> bool:
            printed.append(capsys.readouterr().out)
            return "sec)" in "".join(printed)

        try:
            wait_until(has_printed, "a line")
        finally:
            os.kill(pid, signal.SIGCONT)

    os.kill(pid, signal.SIGSTOP)
    with after(0, go_on):
        assert own_client.ping()
    assert re.search(r"Waiting for the Redis server \(\d+ sec\)", "".join(printed))


@pytest.mark.slow
@pytest.mark.redis
def test_a_server_that_stays_away_is_given_up_in_time(
    own_server: RedisServer, own_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "AWAY_S", 1.0)
    own_server.stop()
    start, clock = time.monotonic(), Clock()
    with pytest.raises(RunError, match=r"tried for 1 sec, stays away: .* refused"):
        own_client.ping()
    assert time.monotonic() - start >= 1.0 and clock.seconds() < 5.0
    monkeypatch.setattr(connection, "AWAY_S", 60.0)
    with pytest.raises(RunError, match="stays away"):
        own_client.ping()
    assert clock.seconds() < 12.0, "what comes after a command that was given up is not waited for as long"
    own_server.start()
    assert own_client.ping(), "a later command is tried anew"


@pytest.mark.redis
def test_a_password_that_is_changed_is_told(
    own_server: RedisServer, own_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "AWAY_S", 1.0)
    with closing(connect("127.0.0.1", own_server.port)) as insider:
        insider.config_set("requirepass", "s3cret")
        insider.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        with pytest.raises(RunError, match=r"stays away: .*[Aa]uthentication") as error:
            own_client.get("key")
    assert "s3cret" not in str(error.value)


@pytest.mark.slow
@pytest.mark.redis
@pytest.mark.parametrize("how", ["gone", "frozen", "full"])
def test_time_without_a_server_is_time_of_waiting(own_server: RedisServer, own_client: Client, how: str) -> None:
    # Mutations: `be_late` that is not called at one of its places; a wait whose end does not give the part back.
    away, back = {
        "gone": (own_server.stop, own_server.start),
        "frozen": (own_server.pause, own_server.go_on),
        "full": (lambda: fill(own_client), lambda: own_client.delete("ballast")),
    }[how]
    clock, before, late = LoopClock("other", "send", "wait"), list[float](), list[dict[str, float]]()

    def come_back() -> None:
        late.append(clock.seconds())
        back()

    def send() -> None:
        waiting.book_on(clock)
        with clock.part("send"):
            own_client.set("key", b"x")
            away()
            before.append(clock.seconds()["send"])  # as it takes a while to stop a server
            with after(3.0, come_back):
                own_client.set("key", b"y")
            time.sleep(0.2)

    sending = threading.Thread(target=send)
    sending.start()
    sending.join()
    spent = clock.seconds()
    assert late[0]["send"] - before[0] < late[0]["wait"], "while it waits"
    assert 0.2 <= spent["send"] - before[0] < spent["wait"]
    assert clock.enter("other") == "other"


# --- a process that shall stop ---


def give_up(client: Client, *command: object) -> tuple[float, float]:
    """Seconds until a command that gets no answer is given up, on the wall and as the machine gives them to us."""
    start, clock = time.monotonic(), Clock()
    with pytest.raises(RunError, match=r"Timeout .*, and this process shall stop"):
        client.execute_command(*command)
    return time.monotonic() - start, clock.seconds()


@pytest.mark.slow
@pytest.mark.redis
def test_a_process_that_shall_stop_does_not_wait_long_for_a_frozen_server(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutations: `_in_time` in one try of the socket's own timeout; `_stopping` that counts for nothing.
    monkeypatch.setattr(connection, "_STOP_S", 1.5)
    monkeypatch.setattr(connection, "_AGAIN_S", 0.5)
    stop = threading.Event()
    with closing(connect("127.0.0.1", own_server.port, stop)) as client:
        assert client.ping()
        own_server.pause()
        with after(1.0, stop.set):
            passed, given = give_up(client, "GET", "key")
            assert passed >= 2.5 and given < 10
        assert give_up(client, "SET", "key", bytes(30_000_000))[1] < 8, "which no buffer on the way can hold"
        assert give_up(client, "PING")[1] < 8
        own_server.go_on()
        assert client.ping()
        with after(1.0, own_server.go_on):
            own_server.pause()
            assert client.ping(), "an answer that comes in time is waited for"


@pytest.mark.redis
def test_a_process_that_shall_stop_tries_once_more_over_a_new_connection(
    own_server: RedisServer, own_client: Client
) -> None:
    # Mutation: `check` that gives up at the first failure, so that an actor told to stop ends with exit code 1.
    stop = threading.Event()

    def break_connection() -> None:
        wait_until(lambda: any(each["cmd"] == "blpop" for each in own_client.client_list()), "the question")
        assert own_client.client_kill_filter(_type="normal", skipme=True)
        own_client.rpush("list", b"x")

    with closing(connect("127.0.0.1", own_server.port, stop)) as client:
        stop.set()
        for _ in range(2):
            with after(0.3, break_connection):
                assert client.blpop(["list"], 5) == (b"list", b"x")
        own_server.stop()
        clock = Clock()
        with pytest.raises(RunError, match=r"refused.*, and this process shall stop"):
            client.ping()
        assert clock.seconds() < 3, "and not a third time"


@pytest.mark.redis
def test_a_process_that_shall_stop_does_not_wait_for_a_first_answer(own_server: RedisServer) -> None:
    stop = threading.Event()
    own_server.pause()
    with after(0.5, stop.set), pytest.raises(Stopped):
        connect("127.0.0.1", own_server.port, stop)


# --- a full server ---


def fill(client: Client) -> None:
    client.set("ballast", b"x" * 10**7)
    client.config_set("maxmemory", 10**7)


def commit(client: Client) -> int | None:
    return Scripts(client).commit(KEYS, 0, TOKEN, Commit(1, [b"a", b"b"], b"state"), allow_gap=False)


@pytest.mark.redis
def test_room_is_waited_for_and_nothing_is_half_written(own_client: Client) -> None:
    assert commit(own_client) is None  # the script is known
    own_client.flushall()
    fill(own_client)
    seen: list[int] = []

    def make_room() -> None:
        seen.append(own_client.exists(KEYS.log(0)))
        own_client.delete("ballast")

    with after(0.7, make_room):
        assert commit(own_client) is None
    assert seen == [0]
    assert own_client.xlen(KEYS.log(0)) == 2


@pytest.mark.redis
def test_a_server_that_cannot_write_its_file_is_waited_for(
    own_server: RedisServer, own_client: Client, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "INTERVAL_S", 0.2)
    (own_server.folder / "dump.rdb").mkdir()  # which the server cannot replace by its file
    own_client.config_set("save", "1 1")
    deadline = Deadline(20, "the server to fail")
    while own_client.info("persistence")["rdb_last_bgsave_status"] == "ok":
        with suppress(BrokerError):
            own_client.once("SET", "key", b"x")
        deadline.check()
    with after(1.5, lambda: own_client.config_set("stop-writes-on-bgsave-error", "no")):
        assert commit(own_client) is None
    assert own_client.xlen(KEYS.log(0)) == 2
    assert "Waiting for the Redis server, which cannot write its file: make room" in capsys.readouterr().out
    monkeypatch.setattr(connection, "AWAY_S", 0.2)
    own_client.config_set("stop-writes-on-bgsave-error", "yes")
    with pytest.raises(RunError, match="cannot write its file"):
        own_client.set("key", b"y")

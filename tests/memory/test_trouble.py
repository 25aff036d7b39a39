"""A real server that is busy, full or a replica: commands and scripts wait until it is well, or end with one line."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import redis

from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.memory.broker import connection
from rainbow_iqn_apex.memory.broker.connection import Client, connect
from rainbow_iqn_apex.memory.broker.trouble import explain_trouble, trouble_of
from tests.conftest import RedisServer
from tests.deadline import wait_until
from tests.memory.links import after

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
                monkeypatch.setattr(connection, "AWAY_S", 0.2)
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


@pytest.mark.parametrize("text", ["BUSYGROUP Consumer Group name already exists", "ERR no such key", "NOASK"])
def test_other_errors_are_no_trouble(text: str) -> None:
    error = redis.ResponseError(text)
    assert trouble_of(error) is None
    assert explain_trouble(error) == text

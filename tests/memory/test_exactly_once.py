"""Every message arrives exactly once, whatever becomes of the replies."""

import random
import select
import socket
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import pytest

from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.connection import Client, connect
from rainbow_iqn_apex.memory.broker.scripts import Scripts
from rainbow_iqn_apex.memory.messages import RoundEnd, encode_message
from tests.chaos.listener import Listener
from tests.memory.links import played

pytestmark = pytest.mark.redis


class FlakyWire(Listener):
    """Passes everything on to a Redis server, but hangs up in the place of one reply in `one_in`, or `after` it."""

    def __init__(self, port: int, one_in: int, *, after: bool) -> None:
        super().__init__()
        self.losing = False
        self.lost = 0
        self._target = ("127.0.0.1", port)
        self._after = after
        self._one_in = one_in
        self._random = random.Random(0)

    def _loses_this(self) -> bool:
        lost = self.losing and self._random.randrange(self._one_in) == 0
        self.lost += lost
        return lost

    def _serve(self, near: socket.socket) -> None:
        with near, suppress(OSError), socket.create_connection(self._target) as far:
            other = {near: far, far: near}
            while True:
                for source in select.select(list(other), [], [])[0]:
                    data = source.recv(1 << 16)
                    lost = source is far and self._loses_this()
                    if not data or (lost and not self._after):
                        return
                    other[source].sendall(data)
                    if lost:
                        return


def check_exactly_once(
    redis_port: int, name: str, send: Callable[[ActorClient, int], object], *, one_in: int = 6, after: bool = False
) -> None:
    with FlakyWire(redis_port, one_in, after=after) as flaky:
        with (
            closing(connect("127.0.0.1", flaky.port)) as far,
            ActorClient(far, name, "id", 0, threading.Event()) as actor,
        ):
            flaky.losing = True
            for number in range(1, 101):
                send(actor, number)
        assert flaky.lost > 10
    with closing(connect("127.0.0.1", redis_port)) as client:
        assert played(client, name) == [*range(1, 101)]


def commit(link: ActorClient, number: int) -> None:
    link.commit([RoundEnd(number)], b"")


def append(link: ActorClient, number: int) -> None:
    link._client.xadd(link.keys.log(0), {"m": encode_message(RoundEnd(number))})


@pytest.mark.parametrize(("one_in", "after"), [(6, False), (2, True)], ids=["lost replies", "closed when just open"])
def test_nothing_is_lost_or_doubled(redis_port: int, run_name: str, one_in: int, after: bool) -> None:
    check_exactly_once(redis_port, run_name, commit, one_in=one_in, after=after)


def test_the_check_notices_doubles(redis_port: int, run_name: str) -> None:
    with pytest.raises(AssertionError):
        check_exactly_once(redis_port, run_name, append)


def test_a_script_that_is_lost_as_soon_as_it_is_loaded_is_loaded_again(
    own_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: one try. A server that is restarted just then did that to a learner's lease.
    load, lost = own_client.script_load, list[Any]()

    def load_and_lose(text: str) -> Any:
        number = load(text)
        if len(lost) < 3:
            lost.append(own_client.script_flush())
        return number

    monkeypatch.setattr(own_client, "script_load", load_and_lose)
    assert Scripts(own_client).renew("lease", b"token", 1000)
    assert len(lost) == 3

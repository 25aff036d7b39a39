"""Servers that are false or broken: an actor goes to another one; in lockstep it ends in one line."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import zmq

from rainbow_iqn_apex.common.errors import RunError, Stopped
from rainbow_iqn_apex.memory.broker.connection import connect
from rainbow_iqn_apex.memory.broker.inference_servers import Address, InferenceServers
from rainbow_iqn_apex.memory.broker.leases import this_host
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.rows import Arrays
from rainbow_iqn_apex.programs.inference import client as remote
from rainbow_iqn_apex.programs.inference.exchange import (
    Answer,
    ClientId,
    Request,
    Welcome,
    decode,
    encode,
    greet,
    greeted,
)
from rainbow_iqn_apex.programs.inference.server import listening
from rainbow_iqn_apex.programs.inference.services import ArraySchema
from tests.inference.raw import Raw
from tests.inference.serving import EACH, KEY, NB_ENV, RUN_ID, VECTOR, Served, Stream, client_of, make, together

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("one_thread", "soon")]
FALSE, TRUE = 1, 0  # numbers of the servers; the false one is asked first, as it has no clients


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an actor lose its patience within a second."""
    monkeypatch.setattr(remote, "LEAST_S", 1.0)
    monkeypatch.setattr(remote, "ALONE_S", 1.0)
    monkeypatch.setattr(remote, "_PAUSE_S", 0.02)


class False_:  # noqa: N801 - `False` is taken
    """Announces itself with a key, its own one if none is given, and talks to a client as `talk` does.

    Use it as a context manager. It leaves when it has talked, unless it `stays`.
    """

    def __init__(self, port: int, name: str, talk: Callable[["Talk"], None], key: str = "", *, stays: bool) -> None:
        self._talk = talk
        self._key = key
        self._stays = stays
        self._servers = InferenceServers(connect("127.0.0.1", port), name, RUN_ID, 1)
        self._over = threading.Event()
        self.talks = 0

    def __enter__(self) -> "False_":
        said_of_the_policy()  # takes its time, of which a client gives little
        self._listening = listening("", 0)
        self._place = self._listening.__enter__()
        self.address = Address(FALSE, this_host(), self._place.local_port, "", 0, self._key or self._place.key, 0)
        self._servers.enlist(FALSE)
        self._servers.announce(self.address)
        self._thread = threading.Thread(target=self._serve, name="false server")
        self._thread.start()
        return self

    def _serve(self) -> None:
        while not self._over.is_set() and not self._place.socket.poll(20):
            pass
        if not self._over.is_set():
            self.talks += 1
            with suppress(ConnectionResetError):
                self._talk(Talk(self._place.socket, self._over))
        if self._stays:
            self._over.wait()
        self._listening.__exit__(None, None, None)

    def __exit__(self, *_: object) -> None:
        self._servers.withdraw(FALSE)
        self._over.set()
        self._thread.join()


@cache
def said_of_the_policy() -> tuple[ChunkSpec, ArraySchema]:
    policy = make("impala-lstm")
    return policy.spec, ArraySchema(policy, VECTOR, NB_ENV)


class Talk:
    """What a false server does with a client."""

    def __init__(self, router: zmq.Socket[bytes], over: threading.Event) -> None:
        self._router = router
        self._over = over
        self._route = b""

    def read(self) -> bytes:
        while not self._router.poll(20):
            if self._over.is_set():
                raise ConnectionResetError
        self._route, data = self._router.recv_multipart()
        return data

    def send(self, data: bytes) -> None:
        self._router.send_multipart([self._route, data])

    def greet(self, **changed: Any) -> None:
        """As a server of the run, but for what is given."""
        greeted(self.read(), ClientId)
        spec, schema = said_of_the_policy()
        good = Welcome(spec, schema.answer, False, NB_ENV)
        values = {name: getattr(good, name) for name in good.__struct_fields__} | changed
        self.send(greet(Welcome(**values)))

    def answer(self, changed: dict[str, Any] | None = None, **fields: Any) -> None:
        """As a server that has weights, but for what is given; arrays that are None are left out."""
        request = decode(self.read(), Request)
        arrays = {
            "actions": np.zeros(EACH, np.int32),
            "extras.log_policy": np.zeros((EACH, 4), np.float32),
            "state.hidden": np.zeros((EACH, 6), np.float32),
            "state.cell": np.zeros((EACH, 6), np.float32),
            "state.last_action": np.zeros(EACH, np.int32),
        }
        arrays = {name: array for name, array in (arrays | (changed or {})).items() if array is not None}
        answer = Answer(request.call, 7, wants_state=False, arrays=arrays)
        self.send(encode(replace(answer, **fields)))

    def reply(self, data: bytes) -> None:
        """Send this for an answer to the next message."""
        self.read()
        self.send(data)


# --- what is wrong before the first request: the actor has never been at the false server ---

GREETINGS: dict[str, Callable[[Talk], None]] = {
    "the end": lambda _: None,
    "nothing": lambda talk: talk.reply(b""),
    "garbage": lambda talk: talk.reply(b"garbage"),
    "a long greeting": lambda talk: talk.reply(b" " * (1 << 17)),
    "other fields": lambda talk: talk.reply(b'{"nonce":"' + b"0" * 32 + b'"}'),
    "no chunks of an agent": lambda talk: talk.greet(spec=asdict(make("impala-lstm").spec) | {"stack": -1}),
    "forms of nothing": lambda talk: talk.greet(answer={"actions": ((-1,), "int32")}),
}


# Mutations that fail here: a greeting as long as an answer; an event of ZeroMQ that is not looked at.
@pytest.mark.parametrize("name", [*GREETINGS, "another key", "silence"])
def test_an_actor_takes_no_server_that_does_not_belong_to_the_run(
    redis_port: int, run_name: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    key = KEY if name == "another key" else ""
    talk, stays = GREETINGS.get(name, lambda _: None), name == "silence"
    with (
        False_(redis_port, run_name, talk, key, stays=stays) as false,
        Served(together("impala-lstm"), redis_port, run_name, clients=5) as served,
        client_of(served) as policy,
    ):
        assert policy._connection.address.number == TRUE and false.talks == (not key)
        assert policy.act(Stream(1).rows(), {}, 5)[0].version == 1
    assert capsys.readouterr().out.count("\n") == 0


def test_an_actor_that_is_greeted_by_nobody_may_be_stopped(redis_port: int, run_name: str) -> None:
    # Mutation: wait for the greeting in one piece.
    def check() -> None:
        raise Stopped

    patience = remote.Patience()
    patience.seconds = remote.MOST_S
    with False_(redis_port, run_name, lambda _: None, stays=True) as false, pytest.raises(Stopped):
        remote.connect(false.address, ClientId(0), patience, check)


# --- what is wrong later ---


def wants_the_state_without_end(talk: Talk) -> None:
    while True:
        talk.answer(wants_state=True)


def with_arrays(**arrays: Any) -> Callable[[Talk], None]:
    return lambda talk: talk.answer({name.replace("__", "."): array for name, array in arrays.items()})


def leaves_when_asked_again(talk: Talk) -> None:
    talk.read()  # so the answer before has arrived: a server that leaves drops what it has not sent yet


ANSWERS: dict[str, Callable[[Talk], None]] = {
    "the end": leaves_when_asked_again,
    "silence": lambda _: time.sleep(1.5),
    "nothing": lambda talk: talk.reply(b""),
    "garbage": lambda talk: talk.reply(b"garbage"),
    "an answer to nothing": lambda talk: talk.answer(call=99),
    "actions of other environments": with_arrays(actions=np.zeros(EACH - 1, np.int32)),
    "one action": with_arrays(actions=np.int32(0)),
    "actions with more to each": with_arrays(actions=np.zeros((EACH, 2), np.int32)),
    "actions that are floats": with_arrays(actions=np.zeros(EACH, np.float32)),
    "no actions": with_arrays(actions=None),
    "an action beyond all": with_arrays(actions=np.full(EACH, 4, np.int32)),
    "extras of other shapes": with_arrays(extras__log_policy=np.zeros((EACH, 5), np.float32)),
    "no extras": with_arrays(extras__log_policy=None),
    "more extras": with_arrays(extras__more=np.zeros(EACH)),
    "a state of other shapes": with_arrays(state__cell=np.zeros((EACH, 5), np.float32)),
    "half a state": with_arrays(state__cell=None),
    "a version below all": lambda talk: talk.answer(version=-1),
    "the wish for a state without end": wants_the_state_without_end,
    "a request": lambda talk: talk.send(talk.read()),
}


# Mutations that fail here: `_check` that looks at the state alone (or at `len`, which one action has not, or at no
# action's number), no limit to its patience, an answer to any call.
@pytest.mark.parametrize("name", ANSWERS)
def test_an_actor_leaves_a_server_that_answers_wrongly(
    redis_port: int, run_name: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def talk(talk: Talk) -> None:
        talk.greet()
        talk.answer()
        ANSWERS[name](talk)

    with (
        False_(redis_port, run_name, talk, stays=False),
        Served(together("impala-lstm"), redis_port, run_name, clients=5) as served,
        client_of(served) as policy,
    ):
        stream, state = Stream(1), Arrays()
        for version in (7, 1, 1):  # those of the two servers
            output, state = policy.act(stream.rows(), state, 5)
            assert output.version == version and output.actions.shape == (EACH,)
    out = capsys.readouterr().out
    assert f"Inference server {FALSE} is lost (" in out and f"Inference server {TRUE} is asked now" in out
    assert out.count("\n") == 2 and max(map(len, out.splitlines())) < 300


CHANGES: dict[str, dict[str, Any]] = {
    "another agent": {"spec": make("r2d2").spec},
    "other extras": {"answer": {"actions": ((), "int32")}},
    "another mode": {"alone": True},
}


# A mutation that fails here: `_replace` without its comparison.
@pytest.mark.parametrize("name", CHANGES)
def test_an_actor_does_not_go_on_at_a_server_of_another_agent(
    redis_port: int, run_name: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Served(together("impala-lstm"), redis_port, run_name, clients=5) as served, client_of(served) as policy:
        stream, state = Stream(1), policy.act(Stream(1).rows(), {}, 5)[1]
        with False_(redis_port, run_name, lambda talk: talk.greet(**CHANGES[name]), stays=True) as false:
            with Raw(served, 0):  # instead of the policy, which is refused with its next request
                pass
            assert policy.act(stream.rows(), state, 5)[0].version == 1
            assert false.talks == 1 and policy._connection.address.number == TRUE
    assert "is lost (it has another agent)" in capsys.readouterr().out


# A mutation that fails here: `_replace` that looks for another server in lockstep, too.
@pytest.mark.parametrize(
    "name", ["the end", "garbage", "an answer to nothing", "one action", "half a state", "silence"]
)
def test_in_lockstep_an_actor_ends_in_one_line(redis_port: int, run_name: str, name: str) -> None:
    def talk(talk: Talk) -> None:
        talk.greet(alone=True)
        talk.answer({"random": np.zeros(8, np.uint8)})
        ANSWERS[name](talk)

    with (
        False_(redis_port, run_name, talk, stays=False),
        Served(together("impala-lstm"), redis_port, run_name, clients=5) as served,
        client_of(served) as policy,
    ):
        state = policy.act(Stream(1).rows(), {}, 5)[1]
        with pytest.raises(RunError, match=r"inference server 1 is lost \(.*\); in lockstep this actor ends") as error:
            policy.act(Stream(1).rows(), state, 5)
        assert "\n" not in str(error.value)

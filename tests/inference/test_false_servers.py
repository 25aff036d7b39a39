"""Servers that are false or broken: an actor goes to another one; in lockstep it ends in one line."""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rainbow_iqn_apex.common.errors import RunError, Stopped
from rainbow_iqn_apex.memory.broker.connection import connect
from rainbow_iqn_apex.memory.broker.inference_servers import Address, InferenceServers
from rainbow_iqn_apex.memory.broker.leases import this_host
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.rows import Arrays
from rainbow_iqn_apex.programs.inference import finding, link, remote_policy
from rainbow_iqn_apex.programs.inference.computing import Forms
from rainbow_iqn_apex.programs.inference.messages import (
    LENGTH,
    Answer,
    Challenge,
    Hello,
    Request,
    Welcome,
    decode,
    encode,
    frame,
    hear,
    proof,
    say,
)
from tests.inference.serving import EACH, NB_ENV, RUN_ID, VECTOR, Served, Stream, client_of, make, receive, together

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("one_thread", "soon")]
FALSE, TRUE = 1, 0  # numbers of the servers; the false one is asked first, as it has no clients
_NONCE = "0" * 32


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an actor lose its patience within a second."""
    monkeypatch.setattr(link, "LEAST_S", 1.0)
    monkeypatch.setattr(remote_policy, "ALONE_S", 1.0)
    monkeypatch.setattr(finding, "_PAUSE_S", 0.02)


class False_:  # noqa: N801 - `False` is taken
    """Announces itself, and talks to each client as `talk` does; a context manager."""

    def __init__(self, folder: Path, port: int, name: str, talk: Callable[["Talk"], None]) -> None:
        self._talk = talk
        self.path = str(folder / "false")
        self._servers = InferenceServers(connect("127.0.0.1", port), name, RUN_ID, 1)
        self._links: list[socket.socket] = []
        self.talks = 0

    def __enter__(self) -> "False_":
        said_of_the_policy()  # takes its time, of which a client gives little
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self.path)
        self._listening.listen(8)
        self._servers.enlist(FALSE)
        self._servers.announce(Address(FALSE, this_host(), self.path, "", 0, 0))
        self._thread = threading.Thread(target=self._serve, name="false server")
        self._thread.start()
        return self

    def _serve(self) -> None:
        with suppress(OSError):  # the end
            while True:
                found, _ = self._listening.accept()
                found.settimeout(10)
                self._links.append(found)
                self.talks += 1
                with suppress(OSError):  # the client has gone
                    self._talk(Talk(found, self._servers.secret()))
                found.close()

    def __exit__(self, *_: object) -> None:
        self._servers.withdraw(FALSE)
        self._listening.shutdown(socket.SHUT_RDWR)
        for each in self._links:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listening.close()


@cache
def said_of_the_policy() -> tuple[ChunkSpec, Forms]:
    policy = make("impala-lstm")
    return policy.spec, Forms(policy, VECTOR, NB_ENV)


class Talk:
    """What a false server does with a client."""

    def __init__(self, found: socket.socket, secret: bytes) -> None:
        self.link = found
        self.secret = secret

    def greet(self, **changed: Any) -> None:
        """As a server of the run, but for what is given."""
        self.link.sendall(say(Challenge(_NONCE)))
        hello = hear(receive(self.link), Hello)
        spec, forms = said_of_the_policy()
        good = Welcome(proof(self.secret, "server", hello.nonce), spec, forms.answer, False, NB_ENV)
        values = {name: getattr(good, name) for name in good.__struct_fields__} | changed
        self.link.sendall(say(Welcome(**values)))

    def answer(self, changed: dict[str, Any] | None = None, **fields: Any) -> None:
        """As a server that has weights, but for what is given; arrays that are None are left out."""
        request = decode(receive(self.link), Request)
        arrays = {
            "actions": np.zeros(EACH, np.int32),
            "extras.log_policy": np.zeros((EACH, 4), np.float32),
            "state.hidden": np.zeros((EACH, 6), np.float32),
            "state.cell": np.zeros((EACH, 6), np.float32),
            "state.last_action": np.zeros(EACH, np.int32),
        }
        arrays = {name: array for name, array in (arrays | (changed or {})).items() if array is not None}
        answer = Answer(request.call, 7, wants_state=False, arrays=arrays)
        self.link.sendall(encode(replace(answer, **fields)))

    def dribble(self) -> None:
        while True:
            self.link.sendall(b"x")
            time.sleep(0.01)


# --- what is wrong before the first request: the actor has never been at the false server ---

GREETINGS: dict[str, Callable[[Talk], None]] = {
    "wrong proof": lambda talk: talk.greet(proof="0" * 64),
    "the client's own proof": lambda talk: talk.greet(proof=proof(talk.secret, "client", _NONCE)),
    "nothing": lambda _: None,
    "silence": lambda _: time.sleep(1.5),
    "garbage": lambda talk: talk.link.sendall(frame(b"garbage")),
    "a long challenge": lambda talk: talk.link.sendall(LENGTH.pack(1 << 27) + bytes(1 << 17)),
    "an endless challenge": lambda talk: talk.dribble(),
    "a challenge of other fields": lambda talk: talk.link.sendall(frame(b'{"nonce":"' + b"0" * 32 + b'","x":1}')),
    "no chunks of an agent": lambda talk: talk.greet(spec=asdict(make("impala-lstm").spec) | {"stack": -1}),
    "forms of nothing": lambda talk: talk.greet(answer={"actions": ((-1,), "int32")}),
}


# Mutations that fail here: `is_proof` that is always true (the actor stays), a greeting as long as an answer.
@pytest.mark.parametrize("name", GREETINGS)
def test_an_actor_takes_no_server_that_does_not_belong_to_the_run(
    redis_port: int, run_name: str, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        False_(tmp_path, redis_port, run_name, GREETINGS[name]) as false,
        Served(together("impala-lstm"), redis_port, run_name, clients=5) as served,
        client_of(served) as policy,
    ):
        assert policy._link.address.number == TRUE and false.talks == 1
        assert policy.act(Stream(1).rows(), {}, 5)[0].version == 1
    assert capsys.readouterr().out.count("\n") == 0


def test_an_actor_that_is_greeted_by_nobody_may_be_stopped(redis_port: int, run_name: str, tmp_path: Path) -> None:
    # Mutation: wait for the greeting in one piece.
    def check() -> None:
        raise Stopped

    patience = link.Patience()
    patience.seconds = link.MOST_S
    with False_(tmp_path, redis_port, run_name, GREETINGS["silence"]) as false, pytest.raises(Stopped):
        link.Link(Address(FALSE, this_host(), false.path, "", 0, 0), link.Asker(0, False), b"", None, patience, check)


# --- what is wrong later ---


def endless(talk: Talk) -> None:
    talk.link.sendall(LENGTH.pack(1 << 20))
    talk.dribble()


def wants_the_state_without_end(talk: Talk) -> None:
    while True:
        talk.answer(wants_state=True)


def with_arrays(**arrays: Any) -> Callable[[Talk], None]:
    return lambda talk: talk.answer({name.replace("__", "."): array for name, array in arrays.items()})


ANSWERS: dict[str, Callable[[Talk], None]] = {
    "the end": lambda _: None,
    "silence": lambda _: time.sleep(1.5),
    "garbage": lambda talk: talk.link.sendall(frame(b"garbage")),
    "an endless answer": endless,
    "an answer too long": lambda talk: talk.link.sendall(LENGTH.pack((1 << 32) - 1)),
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
    "a request": lambda talk: talk.link.sendall(frame(receive(talk.link))),
}


# Mutations that fail here: `_check` that looks at the state alone (or at `len`, which one action has not, or at no
# action's number), no limit to its patience, an answer to any call.
@pytest.mark.parametrize("name", ANSWERS)
def test_an_actor_leaves_a_server_that_answers_wrongly(
    redis_port: int, run_name: str, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def talk(talk: Talk) -> None:
        talk.greet()
        talk.answer()
        ANSWERS[name](talk)

    with (
        False_(tmp_path, redis_port, run_name, talk),
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
    redis_port: int, run_name: str, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Served(together("impala-lstm"), redis_port, run_name, clients=5) as served, client_of(served) as policy:
        stream, state = Stream(1), policy.act(Stream(1).rows(), {}, 5)[1]
        with False_(tmp_path, redis_port, run_name, lambda talk: talk.greet(**CHANGES[name])) as false:
            for peer in list(served.server._peers.values()):
                peer.link.shutdown(socket.SHUT_RDWR)
            assert policy.act(stream.rows(), state, 5)[0].version == 1
            assert false.talks == 1 and policy._link.address.number == TRUE
    assert "is lost (it has another agent)" in capsys.readouterr().out


# A mutation that fails here: `_replace` that looks for another server in lockstep, too.
@pytest.mark.parametrize(
    "name", ["the end", "garbage", "an answer to nothing", "one action", "half a state", "silence"]
)
def test_in_lockstep_an_actor_ends_in_one_line(redis_port: int, run_name: str, tmp_path: Path, name: str) -> None:
    def talk(talk: Talk) -> None:
        talk.greet(alone=True)
        talk.answer({"random": np.zeros(8, np.uint8)})
        ANSWERS[name](talk)

    with (
        False_(tmp_path, redis_port, run_name, talk),
        Served(together("impala-lstm"), redis_port, run_name, clients=5) as served,
        client_of(served) as policy,
    ):
        state = policy.act(Stream(1).rows(), {}, 5)[1]
        with pytest.raises(RunError, match=r"inference server 1 is lost \(.*\); in lockstep this actor ends") as error:
            policy.act(Stream(1).rows(), state, 5)
        assert "\n" not in str(error.value)

"""Clients that are hostile, slow or broken: they are refused, and an honest client notices nothing.

An exception in the server's loop fails each of these tests, see `Served`.
"""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import numpy as np
import pytest
import zmq

from rainbow_iqn_apex.memory.rows import Arrays
from rainbow_iqn_apex.programs.inference import server
from rainbow_iqn_apex.programs.inference.exchange import MOST_GREETING, ClientId, greet
from tests.deadline import wait_until
from tests.inference.raw import BAD_REQUESTS, Raw, hidden, obs, request, state
from tests.inference.serving import EACH, KEY, Served, Stream, alone, client_of, together

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("one_thread")]


@pytest.fixture(scope="module")
def served(redis_port: int) -> Iterator[Served]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "_GREETING_S", 1)
        with Served(together("impala-lstm"), redis_port, f"hostile{os.getpid()}") as served:
            yield served


@pytest.fixture
def honest(served: Served, capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[[], None]]:
    """Acts as an honest client; in the end another one does, and what was printed is looked at."""

    def act() -> None:
        acted = policy.act(stream.rows(), state, 5)
        state.clear()
        state.update(acted[1])
        assert acted[0].actions.shape == (EACH,)

    stream, state = Stream(1), Arrays()
    with client_of(served) as policy:
        act()
        yield act
        act()
        with client_of(served, 2) as other:
            other.act(Stream(2).rows(), {}, 5)
    out, errors = capfd.readouterr()
    assert "is lost" not in out, "the honest client was cut off"
    assert served.lives
    assert errors == "" and out.count("\n") < 12 and all(len(line) < 400 for line in out.splitlines()), out
    assert served.address.key not in out


# --- strangers, who do not have the server's key ---


def connect(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.address.local_port), 30)


@pytest.mark.parametrize("data", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" + bytes(8) + b"\x7f\x03" + bytes(53)])
def test_a_stranger_is_cut_off(served: Served, honest: Callable[[], None], data: bytes) -> None:
    # Mutation: ZeroMQ's own 30 s for a greeting.
    with connect(served) as stranger:
        stranger.sendall(data)
        honest()
        stranger.settimeout(10)
        with suppress(ConnectionResetError):
            while stranger.recv(1 << 16):  # the server's greeting, and the end
                pass
    honest()


# Mutations that fail here: a server without `curve_server`, one whose key is always the same.
@pytest.mark.parametrize("key", ["", KEY, "ab" * 32])
def test_nobody_is_served_without_the_servers_key(served: Served, honest: Callable[[], None], key: str) -> None:
    context = zmq.Context()
    try:
        stranger = context.socket(zmq.DEALER)
        stranger.linger = 0
        if key:
            stranger.curve_publickey, stranger.curve_secretkey = zmq.curve_keypair()
            stranger.curve_serverkey = bytes.fromhex(key)
        stranger.connect(f"tcp://127.0.0.1:{served.address.local_port}")
        stranger.send(greet(ClientId(3)))
        honest()
        assert not stranger.poll(1500)
        assert all(client.who.actor != 3 for client in served.server._clients.values())
    finally:
        context.destroy()


def test_two_hundred_silent_connections_keep_nobody_out(served: Served, honest: Callable[[], None]) -> None:
    with ExitStack() as stack:
        for number in range(200):
            stack.enter_context(connect(served))
            if number % 40 == 0:
                honest()
        with client_of(served, 3) as newcomer:
            newcomer.act(Stream(4).rows(), {}, 5)
        honest()


# --- clients of the run that are broken ---


@pytest.mark.parametrize("data", [b"", b"{}", b"[" * MOST_GREETING, b" " * (MOST_GREETING + 1), request()])
def test_a_greeting_that_is_none_is_refused(served: Served, honest: Callable[[], None], data: bytes) -> None:
    with Raw(served, known=False) as raw:
        raw.send(data)
        honest()
        raw.wait_until_refused()


# Mutations that fail here: no `_is_sane`, no check of `last_action`, of the places, of the number of environments.
@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_a_request_that_is_none_ends_its_conversation(served: Served, honest: Callable[[], None], name: str) -> None:
    with Raw(served) as raw:
        raw.send(BAD_REQUESTS[name])
        honest()
        raw.wait_until_refused()
        raw.send(request(2))
        raw.wait_until_refused()


def test_the_good_request_behind_the_bad_ones_is_answered(served: Served) -> None:
    with Raw(served) as raw:
        for call, more in enumerate((obs(1e9), {}, state(), hidden(-1e9), {"step": 2**63 - 1}, {"step": -1}), 1):
            raw.send(request(call, **more))
            answer = raw.answer()
            assert (answer.call, answer.wants_state) == (call, False) and answer.arrays["actions"].shape == (EACH,)
            assert all(np.isfinite(array).all() for array in answer.arrays.values())
        raw.send(request(9, after=8000))
        assert raw.answer().wants_state


# Mutations that fail here: `client.asked` that is not looked at; `_MOST_OPEN = 1 << 20`.
@pytest.mark.parametrize("calls", [[5, 5], [*range(1, 1001)]], ids=["the same call twice", "a thousand at once"])
def test_too_many_requests_at_once_are_refused(served: Served, honest: Callable[[], None], calls: list[int]) -> None:
    with Raw(served) as raw:
        served.hold()
        for call in calls:
            raw.send(request(call, count=1))
        served.go_on()
        raw.wait_until_refused()
        honest()
    assert max(served.batches) <= 4 + EACH


# A mutation that fails here: `sndhwm = 0`.
def test_a_client_that_never_reads_holds_nobody_up(served: Served, honest: Callable[[], None]) -> None:
    with Raw(served) as raw:
        for call in range(1, 3001):
            raw.send(request(call, after=7000, count=1))
            if call % 500 == 0:
                honest()
        honest()


def test_an_actor_that_connects_again_is_one_client(served: Served, honest: Callable[[], None]) -> None:
    # Mutation: keep the earlier connection of the same actor: its policy and states heap up.
    with Raw(served, 5) as first, Raw(served, 5) as second:
        assert sum(client.who.actor == 5 for client in served.server._clients.values()) == 1
        second.send(request(1))
        assert second.answer().call == 1
        first.send(request(1))
        first.wait_until_refused()
        honest()
    wait_until(lambda: served.server.clients == 1, "the end of the connections")


# A mutation that fails here: states that are slices of a batch.
def test_what_is_kept_of_a_client_is_its_own_alone(served: Served, honest: Callable[[], None]) -> None:
    with Raw(served) as raw:
        for call in range(1, 20):
            raw.send(request(call, count=1))
            honest()
            raw.read()
        kept = [client.kept for client in served.server._clients.values()]
        assert max(map(len, kept)) == 8
        assert all(array.base is None for states in kept for state in states.values() for array in state.values())


# --- lockstep ---


# Mutations that fail here: `wants_state` without which zeros were computed with; `restore_random_state` unguarded.
def test_broken_clients_in_lockstep(redis_port: int, run_name: str) -> None:
    with Served(alone("r2d2"), redis_port, run_name) as served, client_of(served, 1) as policy:
        stream, state = Stream(1), Arrays()
        policy.load({}, 1)
        offences = {
            "more environments": request(count=EACH + 1),
            "a random state of floats": request(kind="reseed", random=np.zeros(5056, np.float32)),
            "a seed below all": request(kind="reseed", step=-1),
            "a version below all": request(kind="load", step=-1),
            "priorities of no chunk": request(kind="priorities"),
            "NaN": request(**obs(np.nan)),
        }
        for data in offences.values():
            with Raw(served, 2) as raw:
                raw.send(data)
                raw.wait_until_refused()
            state = policy.act(stream.rows(), state, 5)[1]
        with Raw(served, 900) as raw:
            raw.send(request(1))
            assert raw.answer().arrays["actions"].shape == (EACH,), "an actor beyond those of the settings"
            raw.send(request(2, after=77))
            assert raw.answer().wants_state
            raw.send(request(3, kind="reseed", step=2**63 - 1))
            assert raw.answer().call == 3
            raw.send(request(4, kind="reseed", random=np.zeros(7, np.uint8)))  # of another device, for all it knows
            assert raw.answer().call == 4
        policy.act(stream.rows(), state, 5)

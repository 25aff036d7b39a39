"""Clients that are hostile, slow or broken: they are cut off or answered, and an honest client notices nothing.

An exception in the server's loop fails each of these tests, see `Served`.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np
import pytest

from rainbow_iqn_apex.memory.rows import Arrays
from rainbow_iqn_apex.programs.inference import peers
from rainbow_iqn_apex.programs.inference.messages import (
    LENGTH,
    MOST_GREETING,
    Answer,
    Hello,
    Welcome,
    decode,
    frame,
    hear,
    proof,
    say,
)
from tests.deadline import wait_until
from tests.inference.raw import BAD_REQUESTS, Raw, hidden, obs, request, state
from tests.inference.serving import EACH, Served, Stream, alone, client_of, together

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("one_thread")]


@pytest.fixture(scope="module")
def served(redis_port: int) -> Iterator[Served]:
    with Served(together("impala-lstm"), redis_port, f"hostile{os.getpid()}") as served:
        yield served


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a server lose its patience within a second."""
    for name in ("_GREETING_S", "_STUCK_S"):
        monkeypatch.setattr(peers, name, 1.0)


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
    assert served.secret.decode() not in out


# --- clients that do not know the secret, and clients of the run that are broken ---

Offence = Callable[[Served], Iterator[Raw]]


def sending(data: Callable[[Raw], bytes], *, known: bool = False, dribbles: bool = False) -> Offence:
    """An offence that is sent at once, or each byte by itself."""

    def offend(served: Served) -> Iterator[Raw]:
        raw = Raw(served, known=known)
        sent = data(raw)
        for part in [bytes([byte]) for byte in sent] if dribbles else [sent]:
            raw.send(part)
            yield raw

    return offend


def replayed_proof(served: Served) -> Iterator[Raw]:
    good, raw = Raw(served), Raw(served)
    good.send(say(good.hello()))
    hear(good.read(), Welcome)
    raw.send(say(good.hello()))
    good.link.close()
    yield raw


def proved(text: str) -> bytes:
    return say(Hello(text, "0" * 32, 1, evaluates=False))


OFFENCES: dict[str, Offence] = {
    "wrong proof": sending(lambda _: proved("0" * 64)),
    "proof of another role": sending(lambda raw: proved(proof(raw.secret, "server", raw.nonce))),
    "replayed proof": replayed_proof,
    "a request first": sending(lambda _: request()),
    "long greeting": sending(lambda _: frame(b" " * (MOST_GREETING + 1))),
    "deep greeting": sending(lambda _: frame(b"[" * MOST_GREETING)),
    "dribbled greeting": sending(lambda raw: frame(say(raw.hello())[LENGTH.size :] + b" " * 3000), dribbles=True),
    "long message": sending(lambda _: LENGTH.pack(1 << 30) + bytes(1000), known=True),
    "endless message": sending(lambda _: LENGTH.pack(3100) + b"x" * 3000, known=True, dribbles=True),
}


# Mutations that fail here: a proof that is not looked at; no role in the proof; one nonce for all; a `_since` that each
# byte sets anew. A length that is not bounded is found by the fuzzer: `without_a_length`.
@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("name", OFFENCES)
def test_a_client_is_cut_off(served: Served, honest: Callable[[], None], name: str) -> None:
    for turn, raw in enumerate(OFFENCES[name](served)):
        if turn % 20 == 0:
            honest()
        if raw.is_cut:
            break
    else:
        assert turn == 0, "one that dribbles is cut off meanwhile"
    raw.wait_until_cut()
    honest()


# Mutations that fail here: no `_is_sane`, no check of `last_action`, of the places, of the number of environments.
@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_a_request_that_is_none_ends_its_connection(served: Served, honest: Callable[[], None], name: str) -> None:
    raw = Raw(served, known=True)
    raw.send(BAD_REQUESTS[name])
    honest()
    raw.wait_until_cut()


def test_the_good_request_behind_the_bad_ones_is_answered(served: Served) -> None:
    raw = Raw(served, known=True)
    for call, more in enumerate((obs(1e9), {}, state(), hidden(-1e9), {"step": 2**63 - 1}, {"step": -1}), 1):
        raw.send(request(call, **more))
        answer = decode(raw.read(), Answer)
        assert (answer.call, answer.wants_state) == (call, False) and answer.arrays["actions"].shape == (EACH,)
        assert all(np.isfinite(array).all() for array in answer.arrays.values())
    raw.send(request(9, after=8000))
    assert decode(raw.read(), Answer).wants_state
    raw.link.close()


def test_the_same_call_twice_ends_the_connection(served: Served, honest: Callable[[], None]) -> None:
    raw = Raw(served, known=True)
    served.hold()
    raw.send(request(5) + request(5))
    served.go_on()
    raw.wait_until_cut()
    honest()


# Mutations that fail here: a server that does not go on with what it has read (`_unfinished`); `MOST_OPEN = 1 << 20`
# lets all of them into one batch.
@pytest.mark.parametrize("after", [0, 7000], ids=["computed", "answered at once"])
def test_a_thousand_requests_at_once_are_answered_a_few_at_a_time(
    served: Served, honest: Callable[[], None], after: int
) -> None:
    raw = Raw(served)
    count = 1000
    data = say(raw.hello()) + b"".join(request(call, after=after, count=1) for call in range(1, count + 1))
    sent, answers = 0, list[int]()
    raw.link.setblocking(False)
    received = bytearray()

    def go_on() -> bool:
        nonlocal sent
        with suppress(BlockingIOError):
            sent += raw.link.send(data[sent : sent + 65536]) if sent < len(data) else 0
        with suppress(BlockingIOError):
            received.extend(raw.link.recv(1 << 18))
        while len(received) >= LENGTH.size and len(received) >= (end := LENGTH.size + LENGTH.unpack_from(received)[0]):
            if not answers:
                hear(bytes(received[LENGTH.size : end]), Welcome)
                answers.append(0)
            else:
                answers.append(decode(bytes(received[LENGTH.size : end]), Answer).call)
            del received[:end]
        if len(answers) % 50 == 10:
            honest()
        return len(answers) == count + 1

    wait_until(go_on, lambda: f"all answers, there are {len(answers)}", 60, every=0.0005, progress=lambda: len(answers))
    assert sorted(answers) == list(range(count + 1))
    assert max(served.batches) <= peers.MOST_OPEN + EACH, "those of this client that may be open, and the honest one's"
    raw.link.close()


# A mutation that fails here: `_may_ask` that does not look at `_out`.
@pytest.mark.usefixtures("soon")
def test_a_client_that_never_reads_is_no_longer_answered_and_is_cut_off(
    served: Served, honest: Callable[[], None]
) -> None:
    raw = Raw(served, known=True)
    before = served.server.values()["inference/requests"]
    data = b"".join(request(call, after=7000, count=1) for call in range(1, 3001))
    raw.link.settimeout(0.05)
    sent = 0

    def is_cut() -> bool:
        nonlocal sent
        honest()
        try:
            sent += raw.link.send(data[sent : sent + 65536])
        except TimeoutError:
            return False
        except OSError:
            return True
        return sent >= len(data)

    wait_until(is_cut, "the end of the connection")
    assert sent < len(data), "it was cut off"
    assert served.server.values()["inference/requests"] - before < 2000, "answers do not heap up"
    raw.link.close()


# Mutations that fail here: newcomers are turned away in the place of the oldest one that has not greeted.
@pytest.mark.usefixtures("soon")
def test_two_hundred_silent_connections_keep_nobody_out(served: Served, honest: Callable[[], None]) -> None:
    silent = []
    for number in range(200):
        silent.append(Raw(served))
        if number % 40 == 0:
            honest()
    assert len(served.server._peers) <= 64 + 4
    Raw(served, known=True).link.close()  # at the first try
    with client_of(served, 3) as newcomer:
        newcomer.act(Stream(4).rows(), {}, 5)
    honest()
    for raw in silent:
        raw.wait_until_cut()


# A mutation that fails here: states that are slices of a batch.
def test_what_is_kept_of_a_client_is_its_own_alone(served: Served, honest: Callable[[], None]) -> None:
    raw = Raw(served, known=True)
    for call in range(1, 20):
        raw.send(request(call, count=1))
        honest()
        raw.read()
    kept = [peer.kept for peer in served.server._peers.values()]
    assert max(map(len, kept)) == 8
    assert all(array.base is None for states in kept for state in states.values() for array in state.values())
    raw.link.close()


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
            raw = Raw(served, known=True)
            raw.send(data)
            raw.wait_until_cut()
            state = policy.act(stream.rows(), state, 5)[1]
        raw = Raw(served)
        raw.link.sendall(say(raw.hello(900)))
        hear(raw.read(), Welcome)
        raw.send(request(1))
        assert decode(raw.read(), Answer).arrays["actions"].shape == (EACH,), "an actor beyond those of the settings"
        raw.send(request(2, after=77))
        assert decode(raw.read(), Answer).wants_state
        raw.send(request(3, kind="reseed", step=2**63 - 1))
        assert decode(raw.read(), Answer).call == 3
        raw.send(request(4, kind="reseed", random=np.zeros(7, np.uint8)))  # of another device, as far as anybody knows
        assert decode(raw.read(), Answer).call == 4
        raw.link.close()
        policy.act(stream.rows(), state, 5)

"""What an inference server and its clients may be sent."""

import json
import random
import socket

import numpy as np

from rainbow_iqn_apex.agents.policy import Acted
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.rows import Arrays
from rainbow_iqn_apex.programs.inference.computing import Forms, act_together, answer_arrays
from rainbow_iqn_apex.programs.inference.messages import (
    LENGTH,
    Answer,
    Challenge,
    Hello,
    Refusal,
    Request,
    Welcome,
    decode,
    encode,
    frame,
    hear,
    proof,
    say,
)
from rainbow_iqn_apex.programs.inference.peers import Peer
from tests.fuzz.mutate import bomb, damage, damage_json, forge_packet, json_text
from tests.fuzz.target import Target
from tests.inference.serving import EACH, NB_ENV, VECTOR, Stream, make

_SECRET = b"5" * 64
_NONCE = "0" * 32


def inference_targets() -> dict[str, Target]:
    """Requests that a server computes, what its clients hear of it, and a stream of messages that is cut anywhere."""
    policy = make("impala-lstm")
    forms = Forms(policy, VECTOR, NB_ENV)
    rows = Stream(1).rows()
    output, state = policy.act(rows, {}, 5)
    arrays = {f"rows.{name}": array for name, array in rows._asdict().items()} | {"places": np.arange(EACH)}
    first = Request(1, "act", 0, 5, arrays)
    second = Request(2, "act", 0, 9, arrays | {f"state.{name}": array for name, array in state.items()})
    requests = [encode(request)[LENGTH.size :] for request in (first, second)]

    def asked(data: bytes) -> Acted:
        ((output, state),) = act_together(policy, [forms.asked(decode(data, Request), None)])
        return output, state

    def answered(data: bytes) -> Answer:
        return decode(data, Answer)

    def use(acted: Acted) -> None:
        output, state = acted
        assert ((output.actions >= 0) & (output.actions < 4)).all()
        assert all(np.isfinite(array).all() for array in (output.extras | state).values())
        encode(Answer(1, output.version, wants_state=False, arrays=answer_arrays(output, state)))

    answers = [
        encode(Answer(1, 3, wants_state, given))[LENGTH.size :]
        for wants_state, given in ((False, answer_arrays(output, state)), (True, Arrays()))
    ]
    hostile = [*requests * 4, bomb(wire.Tag.REQUEST)]
    return {
        "inference requests": Target(0.05, hostile, forge_packet, asked, use, (Refusal,)),
        "inference answers": Target(0.05, answers, forge_packet, answered, lambda _: None, (Refusal,)),
        "inference greetings": _greetings(policy.spec, forms),
        "inference streams": _streams(requests),
    }


def _greetings(spec: ChunkSpec, forms: Forms) -> Target:
    kinds: tuple[type[Challenge | Hello | Welcome], ...] = (Challenge, Hello, Welcome)
    good = (
        Challenge(_NONCE),
        Hello(proof(_SECRET, "client", _NONCE), _NONCE, 3, evaluates=False),
        Welcome(proof(_SECRET, "server", _NONCE), spec, forms.answer, alone=False, places=8),
    )

    def forge(rng: random.Random, data: bytes) -> bytes:
        changed = data[1:]
        changed = json_text(rng, damage_json(rng, json.loads(changed))) if rng.random() < 0.7 else damage(rng, changed)
        return data[:1] + changed

    def read(data: bytes) -> Challenge | Hello | Welcome:
        return hear(data[1:], kinds[data[0]])

    samples = [bytes([number]) + say(greeting)[LENGTH.size :] for number, greeting in enumerate(good)]
    return Target(0.05, samples, forge, read, lambda _: None, (Refusal,))


def _streams(requests: list[bytes]) -> Target:
    """What a client sends, after 8 bytes that decide where it is cut; the same is read however it is cut."""
    most = max(map(len, requests))
    hello = say(Hello("0" * 64, _NONCE, 3, evaluates=False))
    sample = hello + b"".join(frame(request) for request in requests) * 3 + frame(b"") * 9

    def forge(rng: random.Random, data: bytes) -> bytes:
        stream = damage(rng, data[8:]) if rng.random() < 0.7 else data[8:]
        return rng.randbytes(8) + stream

    def read(data: bytes) -> list[bytes]:
        rng = random.Random(data[:8])
        cuts = [rng.choice((1, 3, 40, 900)) for _ in range(400)]
        whole, cut = _read(data[8:], [len(data)], most), _read(data[8:], cuts, most)
        assert whole == cut
        if isinstance(whole, str):
            raise Refusal(whole)
        return whole

    def use(messages: list[bytes]) -> None:
        assert all(len(message) <= most for message in messages)

    return Target(0.02, [bytes(8) + sample], forge, read, use, (Refusal,))


def _read(stream: bytes, sizes: list[int], most: int) -> list[bytes] | str:
    """Return the messages that a server reads of a stream that comes in parts of these sizes; a text if it refuses."""
    client, link = socket.socketpair()
    found: list[bytes] = []
    with client, link:
        peer = Peer(link, _SECRET, most)
        at = 0
        for size in [*sizes, len(stream)]:
            client.sendall(stream[at : at + size])
            at += size
            try:
                if size:
                    peer.read()
                while messages := peer.complete():
                    found += messages if peer.is_known else []
                    peer.is_known = True
            except Refusal as error:
                return str(error)
            except BlockingIOError:
                continue
            if at >= len(stream):
                break
    return found

"""What an actor asks an inference server, and what that answers, in the wire format.

Before that both prove that they know the run's secret. All in order, C the client and S the server:

    S  Challenge(nonce)
    C  Hello(proof of that nonce, nonce, who it is)
    S  Welcome(proof of that nonce, ChunkSpec, forms of an answer, ...)
    C  Request, Request, ...                              S  Answer to each

A client that says anything else is cut off. In lockstep the server computes for each client alone, and answers its
requests in their order; without, it computes what waits together, and answers in any order. About each second it
sends an Answer of `wait` to a client that has waited for longer.

A frame is a length and so many bytes. Every length is bounded before anything is kept of it.
"""

import hashlib
import hmac
import struct
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from rainbow_iqn_apex.common.schema import Count, T, parse, parse_json, parse_record
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS
from rainbow_iqn_apex.memory.rows import Arrays

STACK = "stack"  # of a policy's state: a client pushes its frames, too, so they are not sent back

LENGTH = struct.Struct("<I")
MOST_GREETING = 1 << 16  # bytes of what is said before the first request
Nonce = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
Proof = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Kind = Literal["act", "priorities", "load", "reseed"]
Call = Annotated[int, Meta(ge=0, lt=2**53)]


class Challenge(Struct, frozen=True, forbid_unknown_fields=True):
    """Begins a connection: the server says it first."""

    nonce: Nonce


class Hello(Struct, frozen=True, forbid_unknown_fields=True):
    """Names the client, and proves that it knows the secret."""

    proof: Proof
    nonce: Nonce
    actor: Annotated[int, Meta(ge=0, lt=MAX_ACTORS)]
    evaluates: bool  # whether it is an evaluation actor


class Welcome(Struct, frozen=True, forbid_unknown_fields=True):
    """Answers a client that knows the secret, and proves that the server does."""

    proof: Proof
    spec: ChunkSpec  # of the agent
    answer: dict[str, tuple[tuple[Count, ...], str]]  # shapes, for one environment, and dtypes of an answer to "act"
    alone: bool  # whether each client is computed alone, in lockstep
    places: Count  # environments of all actors that it was started for


class Refusal(Exception):  # noqa: N818 - no error of ours
    """The peer does not belong to the run, or says what none of this release does."""


def proof(secret: bytes, who: str, nonce: str) -> str:
    """Return what shows that `who`, "client" or "server", knows the secret."""
    return hmac.new(secret, f"{who}:{nonce}".encode(), hashlib.sha256).hexdigest()


def is_proof(given: str, secret: bytes, who: str, nonce: str) -> bool:
    """Return whether a proof is that of this secret and nonce."""
    return hmac.compare_digest(given, proof(secret, who, nonce))


def frame(data: bytes) -> bytes:
    """Return a message as it is sent."""
    return LENGTH.pack(len(data)) + data


def cut(data: bytearray, most: int) -> bytes | None:
    """Take the first message off what has come, None if it is not complete; raises Refusal for one that is too long."""
    if (stop := stop_of(data, most)) is None:
        return None
    message = bytes(data[LENGTH.size : stop])
    del data[:stop]
    return message


def stop_of(data: bytearray, most: int) -> int | None:
    """Return where the first message ends, None if it is not complete; raises Refusal for one that is too long."""
    if len(data) < LENGTH.size:
        return None
    length: int = LENGTH.unpack_from(data)[0]
    if length > most:
        raise Refusal(f"a message of {length} bytes")
    stop = LENGTH.size + length
    return stop if stop <= len(data) else None


def say(greeting: Struct) -> bytes:
    """Return a greeting as it is sent."""
    return frame(msgspec.json.encode(greeting))


def hear(data: bytes, kind: type[T]) -> T:
    """Return a greeting of this kind; raises Refusal for anything else."""
    try:
        return parse(parse_json(data), kind)
    except ValueError as error:
        raise Refusal(f"no {kind.__name__.lower()}: {error}") from error


@dataclass(frozen=True)
class Request:
    """Asks for something of a kind.

    - "act", for actions in E environments. `after` names the call whose state the server shall go on from; 0: the state
      is in `arrays`, or this is the first call. `step` counts agent steps over all actors; -1 evaluates. `arrays` holds
      rows.*, places and perhaps state.*, [E, ...].
    - "priorities" of a chunk's rows; `arrays` holds rows.*, [window, ...].
    - In lockstep alone: "load" weights of the version `step`; "reseed" the random numbers with the seed `step`, or let
      them go on from the state that `arrays` holds as "random".
    """

    call: Call
    kind: Kind
    after: Call
    step: Annotated[int, Meta(ge=-1, le=2**63 - 1)]
    arrays: Arrays


@dataclass(frozen=True)
class Answer:
    """Answers a call by weights of a version, or asks for the state that the server does not have (any more).

    `arrays` holds actions, extras.* and state.* but for the stack, [E, ...], or priorities [samples]; in lockstep also
    the state of the random numbers as "random". With `wait` it is no answer yet, but shows that the server lives.
    """

    call: Call
    version: Count
    wants_state: bool
    arrays: Arrays
    wait: bool = False


Message = TypeVar("Message", Request, Answer)
_TAGS = {Request: wire.Tag.REQUEST, Answer: wire.Tag.ANSWER}


def encode(message: Request | Answer) -> bytes:
    """Return a message as it is sent; its frames are not compressed, which takes longer than to send them."""
    meta = {name: value for name, value in vars(message).items() if name != "arrays"}
    return frame(wire.encode(_TAGS[type(message)], meta, message.arrays, compress=False))


def decode(data: bytes, kind: type[Message]) -> Message:
    """Return a request or an answer; raises Refusal for anything else."""
    try:
        packet = wire.decode(data, len(data))
        if packet.tag is not _TAGS[kind]:
            raise wire.WireError(f"a {packet.tag.name} message in the place of a {_TAGS[kind].name}")
        return parse_record(packet.meta | {"arrays": packet.arrays}, kind)
    except ValueError as error:
        raise Refusal(str(error)) from error

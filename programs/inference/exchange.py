"""What an actor asks an inference server, and what the server answers; both sides use this file.

A client is a ZeroMQ DEALER, a server a ROUTER. CURVE encrypts and authenticates: a server draws a key when it starts,
and publishes the public half in Redis alone, without which no client can begin a connection. C is the client, S the
server:

    C  ClientId                                    S  Welcome (agent, arrays of an answer, ...)
    C  Request, Request, ...                       S  Answer to each, in the order of the requests in lockstep alone

About each second the server sends an Answer of `wait` to a client that has waited for longer. An empty message is
its last one: the client has sent something else, and is answered no more.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

import msgspec
import zmq
from msgspec import Meta, Struct

from rainbow_iqn_apex.common.schema import Count, T, parse, parse_json, parse_record
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS
from rainbow_iqn_apex.memory.rows import Arrays

STACK = "stack"  # of a policy's state: a client pushes its frames, too, so they are not sent back
MOST_GREETING = 1 << 16  # bytes of a ClientId or a Welcome
MOST_MESSAGE = 1 << 28  # bytes

Forms = dict[str, tuple[tuple[int, ...], str]]  # shape and dtype of each array
Kind = Literal["act", "priorities", "load", "reseed"]
Call = Annotated[int, Meta(ge=0, lt=2**53)]


class ClientId(Struct, frozen=True, forbid_unknown_fields=True):
    """The actor or evaluation actor that asks."""

    actor: Annotated[int, Meta(ge=0, lt=MAX_ACTORS)]
    evaluates: bool = False  # whether it is an evaluation actor


class Welcome(Struct, frozen=True, forbid_unknown_fields=True):
    """Answers a client's ClientId."""

    spec: ChunkSpec  # of the agent
    answer: dict[str, tuple[tuple[Count, ...], str]]  # shapes, for one environment, and dtypes of an answer to "act"
    alone: bool  # whether each client is computed alone, in lockstep
    places: Count  # environments of all actors that it was started for


class Refusal(Exception):  # noqa: N818 - no error of ours
    """The peer does not belong to the run, or sends what none of this release does."""


@dataclass(frozen=True)
class Request:
    """Asks for something of a kind.

    - "act", for actions in E environments. `after` names the call whose state the server shall continue from; 0: the
      state is in `arrays`, or this is the first call. `step` counts agent steps over all actors; -1 evaluates. `arrays`
      holds rows.*, places and perhaps state.*, [E, ...].
    - "priorities" of a chunk's rows; `arrays` holds rows.*, [window, ...].
    - In lockstep alone: "load" weights of the version `step`; "reseed" the random numbers with the seed `step`, or let
      them continue from the state that `arrays` holds as "random".
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


def greet(greeting: Struct) -> bytes:
    """Encode a ClientId or a Welcome."""
    return msgspec.json.encode(greeting)


def greeted(data: bytes, kind: type[T]) -> T:
    """Decode a greeting of this kind; raises Refusal for anything else."""
    try:
        if len(data) > MOST_GREETING:
            raise ValueError(f"a message of {len(data)} bytes")
        return parse(parse_json(data), kind)
    except ValueError as error:
        raise Refusal(f"no {kind.__name__.lower()}: {error}") from error


def encode(message: Request | Answer) -> bytes:
    """Encode a message; its frames are not compressed, which takes longer than to send them."""
    meta = {name: value for name, value in vars(message).items() if name != "arrays"}
    return wire.encode(_TAGS[type(message)], meta, message.arrays, compress=False)


def decode(data: bytes, kind: type[Message]) -> Message:
    """Decode a request or an answer; raises Refusal for anything else."""
    try:
        packet = wire.decode(data, len(data))
        if packet.tag is not _TAGS[kind]:
            raise wire.WireError(f"a {packet.tag.name} message in the place of a {_TAGS[kind].name}")
        return parse_record(packet.meta | {"arrays": packet.arrays}, kind)
    except ValueError as error:
        raise Refusal(str(error)) from error


def open_socket(context: zmq.Context[zmq.Socket[bytes]], kind: int) -> zmq.Socket[bytes]:
    """Return a socket that drops what is unsent when it is closed.

    Without the TCP options, an end that has nothing to send would never learn that the other one's host is gone.
    """
    socket = context.socket(kind)
    for option, value in (
        (zmq.LINGER, 0),
        (zmq.MAXMSGSIZE, MOST_MESSAGE),
        (zmq.TCP_KEEPALIVE, 1),
        (zmq.TCP_KEEPALIVE_IDLE, 10),  # s
        (zmq.TCP_KEEPALIVE_INTVL, 5),  # s
        (zmq.TCP_KEEPALIVE_CNT, 2),
        (zmq.TCP_MAXRT, 20_000),  # ms
    ):
        socket.setsockopt(option, value)
    return socket


def endpoint(host: str, port: int | str, *, is_ipv6: bool) -> str:
    """Return ZeroMQ's name of an address in numbers."""
    return f"tcp://[{host}]:{port}" if is_ipv6 else f"tcp://{host}:{port}"

"""The messages of an actor to the learner: one stream for each actor, in the order in which the actor wrote them.

A stream begins with Joined(round), then brings chunks and finished episodes, and a RoundEnd after each round of play.
All messages of an actor are in one ordered log, so none overtakes another, and a restart reads the same order again.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec import Struct

from rainbow_iqn_apex.common.schema import Counted, parse, parse_record
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkSpec, check_played
from rainbow_iqn_apex.memory.environment_spec import ActionSpec, Field
from rainbow_iqn_apex.memory.rows import section
from rainbow_iqn_apex.memory.wire import Packet, Tag, WireError

Record = dict[str, bool | int | float | str]


@dataclass(frozen=True)
class Episode:
    """A finished training episode; `record` holds its scores by name (numbers and short texts)."""

    record: Record


@dataclass(frozen=True)
class Joined:
    """The actor starts without a saved state, at this round."""

    round: Counted


@dataclass(frozen=True)
class RoundEnd:
    """The actor has played this round and everything of it is in the log."""

    round: Counted


Message = Chunk | Episode | Joined | RoundEnd


class _ChunkMeta(Struct):
    env: Counted
    version: Counted


def encode_message(message: Message) -> bytes:
    """Encode a message for an actor's stream."""
    match message:
        case Chunk():
            meta = {"env": message.env, "version": message.version}
            arrays = {f"rows.{name}": array for name, array in message.rows.items()}
            arrays |= {f"state.{name}": array for name, array in message.state.items()}
            if message.priorities is not None:
                arrays["priorities"] = message.priorities
            return wire.encode(Tag.CHUNK, meta, arrays)
        case Episode():
            return wire.encode(Tag.EPISODE, dict(message.record), compress=False)
        case Joined():
            return wire.encode(Tag.JOINED, {"round": message.round}, compress=False)
        case RoundEnd():
            return wire.encode(Tag.ROUND_END, {"round": message.round}, compress=False)


def decode_message(data: bytes, max_payload: int) -> Message:
    """Decode an entry of an actor's stream; raises WireError for anything else."""
    packet = wire.decode(data, max_payload)
    try:
        match packet.tag:
            case Tag.CHUNK:
                return _chunk(packet)
            case Tag.EPISODE:
                return Episode(parse(packet.meta, Record))
            case Tag.JOINED:
                return parse(packet.meta, Joined)
            case Tag.ROUND_END:
                return parse(packet.meta, RoundEnd)
    except ValueError as error:
        raise WireError(f"{packet.tag.name} message: {error}") from error
    raise WireError(f"a {packet.tag.name} message does not belong into an actor's stream")


def _chunk(packet: Packet) -> Chunk:
    meta = parse(packet.meta, _ChunkMeta)
    return Chunk(
        env=meta.env,
        version=meta.version,
        rows=section(packet.arrays, "rows."),
        state=section(packet.arrays, "state."),
        priorities=packet.arrays.get("priorities"),
    )


class ChunkSchema(NamedTuple):
    """What the chunks of a run's actors must look like."""

    spec: ChunkSpec
    fields: dict[str, Field]  # of their rows
    action: ActionSpec


@dataclass(frozen=True)
class MessageSchema:
    """What the messages of a stream must look like, so that the learner can use all that `decode` lets pass."""

    max_payload: int = 0  # bytes
    chunk: ChunkSchema | None = None  # None: any chunk
    record: Any = None  # dataclass of an episode's record; None: any record
    added: Record = field(default_factory=dict)  # what the learner adds to a record
    nb_env: int | None = None  # environments of an actor; None: any number
    episodes_only: bool = False

    def decode(self, data: bytes) -> Message:
        """Decode a message; raises ValueError for one that does not fit."""
        message = decode_message(data, self.max_payload)
        if self.episodes_only and not isinstance(message, Episode):
            raise ValueError("an evaluation actor sends episodes alone")
        if isinstance(message, Chunk) and self.chunk:
            self._check_env(message.env)
            check_played(message, *self.chunk)
        elif isinstance(message, Episode) and self.record:
            self._check_env(parse_record(message.record | self.added, self.record).env)
        return message

    def _check_env(self, env: int) -> None:
        if self.nb_env is not None and env >= self.nb_env:
            raise ValueError(f"an environment beyond the {self.nb_env} of an actor")

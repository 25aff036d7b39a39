"""Messages that the learner refuses: frames of the wire, what is in them, and what a run has no use for."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
import zstandard

from rainbow_iqn_apex.common.schema import MOST_COUNTED as MOST
from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.memory import weights_packet, wire
from rainbow_iqn_apex.memory.chunk import ChunkSpec
from rainbow_iqn_apex.memory.messages import Episode, Joined, RoundEnd, decode_message, encode_message
from rainbow_iqn_apex.memory.wire import Tag
from rainbow_iqn_apex.programs.learner.ingest import EVALUATION_MESSAGES, actor_messages
from tests.fuzz.mutate import PREFIX, seal
from tests.refusals.reader import Reader, Refused, of
from tests.specs import discrete

# --- the wire ---


def frame(
    header: bytes, payload: bytes, size: int | None = None, flags: int = 0, magic: bytes = b"RIQX", version: int = 1,
    kind: int = 1,
) -> bytes:  # fmt: skip
    """A message with a right checksum and anything in it."""
    size = len(payload) if size is None else size
    return seal(PREFIX.pack(magic, version, kind, flags, len(header), size) + header + payload)


def header_of(meta: Any, table: Any) -> bytes:
    return json.dumps({"meta": meta, "arrays": table}, separators=(",", ":")).encode()


def table_of(*shape: int, dtype: str = "uint8") -> bytes:
    return header_of({}, [["a", dtype, shape]])


GOOD = table_of(4)
FOREIGN_DTYPES = ("object", "U3", "bool", "float16", "complex64", "datetime64[s]", "uint64")
FRAMES: Refused = {
    "wrong magic": [frame(GOOD, bytes(4), magic=b"RIQY")],
    "version 0 is older": [frame(GOOD, bytes(4), version=0)],
    "version 2 is newer": [frame(GOOD, bytes(4), version=2)],
    "unknown message kind 0": [frame(GOOD, bytes(4), kind=0)],
    "unknown message kind 10": [frame(GOOD, bytes(4), kind=10)],
    "unknown flags 0x2": [frame(GOOD, bytes(4), flags=2)],
    "shorter than its frame": [b"", frame(GOOD, bytes(4))[:23]],
    "1 bytes of the payload belong to no array": [frame(GOOD, bytes(5))],
    "runs past the payload": [frame(GOOD, bytes(3)), frame(table_of(1 << 23, dtype="float64"), bytes(40))],
    "payload of 4 bytes, 5 announced": [frame(GOOD, bytes(4), size=5)],
    "a payload of 9223372036854775808 bytes": [frame(GOOD, bytes(4), size=2**63)],
    "metadata is not a JSON object": [frame(header_of([], []), b"")],
    "unreadable header": [
        frame(b"", b""), frame(b"\xff\xfe", b""), frame(b"[" * 60000, b""),
        frame(b'{"meta":{},"arrays":[["a","uint8",[' + b"9" * 5000 + b"]]]}", b""),
        *(frame(table_of(1, dtype=np.dtype(name).name), bytes(8)) for name in FOREIGN_DTYPES),
    ],
    "the impossible shape": [
        frame(table_of(0, 2**30, 2**30, 2**30), b""), *(frame(table_of(*[1] * count), bytes(1)) for count in (17, 65)),
    ],
    "two arrays have one name": [frame(header_of({}, [["a", "uint8", [2]], ["a", "uint8", [2]]]), bytes(4))],
    "compressed payload of 4 bytes, 5 announced": [frame(GOOD, zstandard.compress(bytes(4)), 5, flags=1)],
    "does not decompress": [
        frame(GOOD, bytes(4), flags=1), frame(GOOD, zstandard.compress(bytes(4)) + b"more", 4, flags=1),
    ],
}  # fmt: skip

# --- an actor's messages ---

LIMIT = 1 << 16
NO_NUMBERS = (-1, MOST, True, False, 1.0, "1", None, [1], {"a": 1}, float("nan"))


def _numbered(tag: Tag, meta: dict[str, Any], name: str) -> Refused:
    """Return messages with a number of this name left out, or wrong."""
    without = {key: value for key, value in meta.items() if key != name}
    return {
        f"^{tag.name} message: Object missing required field `{name}`": [wire.encode(tag, without)],
        rf"^{tag.name} message: Expected `int`.*\$\.{name}`$": [wire.encode(tag, meta | {name: x}) for x in NO_NUMBERS],
    }


MESSAGES: Refused = {
    **_numbered(Tag.JOINED, {"round": 0}, "round"),
    **_numbered(Tag.ROUND_END, {"round": 0}, "round"),
    **_numbered(Tag.CHUNK, {"env": 0, "version": 0}, "env"),
    **_numbered(Tag.CHUNK, {"env": 0, "version": 0}, "version"),
    "^EPISODE message: Expected `bool": [
        wire.encode(Tag.EPISODE, {"good": 1, "wrong": wrong}) for wrong in (None, [1], {"score": 1})
    ],
    "a STATE message does not belong": [wire.encode(Tag.STATE, {"round": 1})],
    "a WEIGHTS message does not belong": [wire.encode(Tag.WEIGHTS, {"round": 1})],
    "a payload of 65537 bytes, 65536 allowed": [
        wire.encode(Tag.CHUNK, {"env": 0, "version": 0}, {"rows.obs": np.zeros(LIMIT + 1, np.uint8)})
    ],
}

# --- episodes ---

RECORD = asdict(EpisodeRecord(300, 0, 1, 2, 7, 1.5, -3.0, 21.0, 90, "game_over"))
NO_SCORES = [1.7e308, -1.7e308, 1e15, -1e15, 10**400, float("inf"), float("nan"), True, "1", ""]
NO_COUNTS = [-1, MOST, 2**63 - 1, 10**400, 1.0, 1e300, float("nan"), False, "1"]
NO_WORDS = ["", "a b", "a,b", "x" * 65, "fin\u00e9", "a\n", 1, 1.5]
EPISODES = actor_messages(ChunkSpec(2, 0, 4, 1, 4, 1), discrete((3,), "uint8", 5), nb_env=3).decode


def _episode(record: dict[str, Any], **changes: Any) -> bytes:
    return encode_message(Episode(record | changes))


def _episodes(record: dict[str, Any], filled_in: set[str]) -> Refused:
    """Return the refusals of a record with a wrong, a missing or a strange field; the learner fills some in."""
    wrong = {float: NO_SCORES, int: NO_COUNTS, str: NO_WORDS}
    names = [name for name in record if name not in filled_in]
    others = [{key: x for key, x in record.items() if key != name} for name in names]
    refused: Refused = {"other fields": [_episode(other) for other in (*others, record | {"\u00e9": 1})]}
    for name in names:
        refused[rf"^.* - at `\$\.{name}`"] = [_episode(record, **{name: x}) for x in wrong[type(record[name])]]
    return refused


# --- evaluation actors' scores ---

SCORE = {name: value for name, value in RECORD.items() if name not in ("actor", "env", "episode")} | {"version": 4}
EVALUATIONS: Refused = {
    **_episodes(SCORE, set()),
    "shorter than its frame": [b"", b"\x80nonsense"],
    "checksum differs": [_episode(SCORE)[:-1]],
    "sends episodes alone": [encode_message(Joined(0)), encode_message(RoundEnd(0))],
    "a payload of 9 bytes, 0 allowed": [wire.encode(Tag.EPISODE, SCORE, {"x": np.zeros(9, np.uint8)})],
    "a payload of 12 bytes, 0 allowed": [wire.encode(Tag.WEIGHTS, {"version": 1}, {"w": np.zeros(3, np.float32)})],
}

# --- weights ---

WANTED = {
    "a": torch.zeros(2, 3),
    "half": torch.zeros(4, dtype=torch.bfloat16),
    "count": torch.zeros((), dtype=torch.int64),
}


def _weights(**changes: torch.Tensor) -> bytes:
    return weights_packet.pack(WANTED | changes, 1)


WEIGHTS: Refused = {
    "'more' is missing or too many, of 3 tensors": [_weights(more=torch.zeros(1))],
    "'a' is missing or too many": [weights_packet.pack({name: WANTED[name] for name in ("half", "count")}, 1)],
    r"a is torch.float32 \[3, 2\], needed": [_weights(a=torch.zeros(3, 2))],
    "a is torch.int32": [_weights(a=torch.zeros(2, 3, dtype=torch.int32))],
    r"count is torch.float32 \[\], needed is torch.int64": [_weights(count=torch.zeros(()))],
    "half has values that are not finite": [_weights(half=WANTED["half"] / 0)],
    "a has values that are not finite": [_weights(a=WANTED["a"] + torch.inf)],
    "needed are the bits of bfloat16 as uint16": [
        wire.encode(Tag.WEIGHTS, {"version": 1}, {"bfloat16.half": np.zeros(4, np.float32)})
    ],
}

PACKETS = [
    Reader("wire", of(wire.decode), frame(GOOD, zstandard.compress(b"abcd"), 4, flags=1), wire.WireError, FRAMES),
    Reader(
        "message", of(lambda data: decode_message(data, LIMIT)), encode_message(Joined(MOST - 1)), wire.WireError,
        MESSAGES,
    ),
    Reader(
        "training episode", of(EPISODES),
        _episode(RECORD, score_saber=21, score_5min=MOST * (1 - 1e-15), T_actors=MOST - 1, end="x" * 64), ValueError,
        {"beyond the 3 of an actor": [_episode(RECORD, env=3)], **_episodes(RECORD, {"T_learner"})},
    ),
    Reader(
        "evaluation episode", of(EVALUATION_MESSAGES.decode), _episode(SCORE, version=5, T_learner=500),
        ValueError, EVALUATIONS,
    ),
    Reader(
        "weights", of(lambda data: weights_packet.weights_for(WANTED, wire.decode(data))), _weights(),
        Exception, WEIGHTS,
    ),
]  # fmt: skip

"""The encoding of everything that crosses the network or is stored in Redis: named arrays and a little metadata.

Layout, little-endian:

    magic 4s | version u8 | kind u8 | flags u16 | header length u32 | raw payload length u64
    header   JSON, without spaces: {"meta":{...},"arrays":[[name,dtype,shape],...]}
    payload  the arrays' bytes in C order one after the other, as one zstd frame if flag 1 is set
    crc32    u32 over everything before it

Nothing here can run code, and nothing is allocated before its size is known to be allowed: bytes from the network may
be wrong or hostile. A version that differs is refused, never guessed at.
"""

import json
import math
import struct
import zlib
from enum import IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import zstandard

from rainbow_iqn_apex.memory.rows import DTYPES, Array, Arrays

MAGIC = b"RIQX"
VERSION = 1
COMPRESSED = 1
MAX_HEADER_BYTES = 1 << 16
MAX_PAYLOAD_BYTES = 1 << 30
_NAMES = {dtype: name for name, dtype in DTYPES.items()}

MAX_STATE_HEADER_BYTES = 1 << 23  # some 500 bytes for each of an actor's environments, of which it has up to 10 000
_TABLES = 64  # of arrays that are kept: a run has one for each kind of message

_PREFIX = struct.Struct("<4sBBHIQ")
_CRC = struct.Struct("<I")
_META, _ARRAYS = b'{"meta":', b',"arrays":'


class WireError(ValueError):
    """Bytes that are not a message of this version, or that were damaged."""


class Tag(IntEnum):
    """Kinds of messages."""

    CHUNK = 1
    EPISODE = 2
    JOINED = 3
    ROUND_END = 4
    STATE = 5
    WEIGHTS = 6
    FILM = 7
    REQUEST = 8
    ANSWER = 9


class Packet(NamedTuple):
    """A decoded message."""

    tag: Tag
    meta: dict[str, Any]
    arrays: Arrays


def encode(tag: Tag, meta: dict[str, Any], arrays: Arrays | None = None, *, compress: bool = True) -> bytes:
    """Encode named arrays (dtypes of `DTYPES`) and JSON metadata; `compress` packs the payload with zstd level 1."""
    arrays = {name: np.ascontiguousarray(array).reshape(np.shape(array)) for name, array in (arrays or {}).items()}
    table = [[name, _dtype_name(name, array), list(array.shape)] for name, array in arrays.items()]
    header = json.dumps({"meta": meta, "arrays": table}, separators=(",", ":")).encode()
    payload = b"".join(array.tobytes() for array in arrays.values())
    size = len(payload)
    if len(header) > (MAX_STATE_HEADER_BYTES if tag is Tag.STATE else MAX_HEADER_BYTES) or size > MAX_PAYLOAD_BYTES:
        raise WireError(f"message too large to send: header {len(header)} bytes, payload {size} bytes")
    if compress:
        payload = zstandard.ZstdCompressor(level=1).compress(payload)
    prefix = _PREFIX.pack(MAGIC, VERSION, tag, COMPRESSED if compress else 0, len(header), size)
    body = b"".join((prefix, header, payload))
    return body + _CRC.pack(zlib.crc32(body))


Table = tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...]  # name, dtype and shape of each array


class _Frame(NamedTuple):
    """A message whose payload has not been looked at."""

    tag: Tag
    meta: dict[str, Any]
    table: Table
    compressed: bool
    size: int  # of the payload, decompressed
    body: bytes  # the payload as it was sent


def decode(data: bytes, max_payload: int = MAX_PAYLOAD_BYTES, max_header: int = MAX_HEADER_BYTES) -> Packet:
    """Decode one message; its arrays are read-only views of at most `max_payload` bytes in all.

    Only who reads an actor's state allows MAX_STATE_HEADER_BYTES: a peer may call any message a state. Raises WireError
    for anything but a whole, undamaged message of this version.
    """
    frame = _read_frame(data, max_payload, max_header)
    payload = _decompress(frame.body, frame.size) if frame.compressed else frame.body
    if len(payload) != frame.size:
        raise WireError(f"payload of {len(payload)} bytes, {frame.size} announced")
    return Packet(frame.tag, frame.meta, _read_arrays(frame.table, payload))


def decode_meta(data: bytes) -> dict[str, Any]:
    """Decode the metadata of a message alone, without its payload; raises WireError as `decode`."""
    return _read_frame(data, MAX_PAYLOAD_BYTES, MAX_STATE_HEADER_BYTES).meta


def peek_meta(data: bytes) -> dict[str, Any]:
    """Decode the metadata of a message of which these are the first bytes, unchecked; raises WireError as `decode`."""
    if len(data) < _PREFIX.size:
        raise WireError(f"message of {len(data)} bytes is shorter than its frame")
    magic, version, _, _, header_length, _ = _PREFIX.unpack_from(data)
    _check_version(magic, version)
    if header_length > len(data) - _PREFIX.size:
        raise WireError(f"message claims a header of {header_length} bytes")
    return _read_header(data[_PREFIX.size :][:header_length])[0]


def other_version(version: int) -> str:
    """Explain that a peer uses another version of the wire, and what to do about it."""
    if version < VERSION:
        return f"wire version {version} is older than this program's {VERSION}: update the program that wrote it"
    return f"wire version {version} is newer than this program's {VERSION}: update this program"


def _read_frame(data: bytes, max_payload: int, max_header: int) -> _Frame:
    if len(data) < _PREFIX.size + _CRC.size:
        raise WireError(f"message of {len(data)} bytes is shorter than its frame")
    magic, version, kind, flags, header_length, size = _PREFIX.unpack_from(data)
    _check_version(magic, version)
    if zlib.crc32(memoryview(data)[: -_CRC.size]) != _CRC.unpack_from(data, len(data) - _CRC.size)[0]:
        raise WireError("checksum differs: the message was damaged")
    if size > max_payload or header_length > min(max_header, len(data) - _PREFIX.size - _CRC.size):
        raise WireError(
            f"message claims a header of {header_length} and a payload of {size} bytes, {max_payload} allowed"
        )
    if flags & ~COMPRESSED:
        raise WireError(f"unknown flags {flags:#x}")
    try:
        tag = Tag(kind)
    except ValueError as error:
        raise WireError(f"unknown message kind {kind}") from error
    meta, table = _read_header(data[_PREFIX.size : _PREFIX.size + header_length])
    body = data[_PREFIX.size + header_length : -_CRC.size]
    return _Frame(tag, meta, table, bool(flags & COMPRESSED), size, body)


def _check_version(magic: bytes, version: int) -> None:
    if magic != MAGIC:
        raise WireError("not a message of this project (wrong magic)")
    if version != VERSION:
        raise WireError(other_version(version))


def _dtype_name(name: str, array: Array) -> str:
    found = _NAMES.get(array.dtype)  # numpy composes a dtype's name anew each time; another byte order is another dtype
    if found is None:
        raise TypeError(f"array {name!r} has dtype {array.dtype}; the wire carries {', '.join(DTYPES)}")
    return found


def _read_header(data: bytes) -> tuple[dict[str, Any], Table]:
    # The last such key is the header's own, as a quote within a text is escaped. All chunks of a run have one table.
    meta_text, _, table_text = data.removeprefix(_META).rpartition(_ARRAYS)
    try:
        if not (data.startswith(_META) and table_text.endswith(b"}")):
            raise ValueError("it has other parts")
        read = _read_table if len(data) <= MAX_HEADER_BYTES else _read_table.__wrapped__  # which keeps nothing
        meta = json.loads(meta_text)
        table = read(table_text[:-1])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WireError(f"unreadable header: {error!r}") from error
    if not isinstance(meta, dict):
        raise WireError("the header's metadata is not a JSON object")
    return meta, table


@lru_cache(_TABLES)
def _read_table(text: bytes) -> Table:
    table = tuple((str(name), DTYPES[dtype], tuple(shape)) for name, dtype, shape in json.loads(text))
    if len({name for name, _, _ in table}) != len(table):
        raise WireError("two arrays have one name")
    for name, _, shape in table:
        if not all(type(length) is int and 0 <= length <= MAX_PAYLOAD_BYTES for length in shape) or len(shape) > 16:
            raise WireError(f"array {name!r} has the impossible shape {shape}")
    return table


def _decompress(data: bytes, size: int) -> bytes:
    try:
        announced = zstandard.frame_content_size(data)
        if announced != size:
            raise WireError(f"compressed payload of {announced} bytes, {size} announced")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise WireError(f"payload does not decompress: {error}") from error


def _read_arrays(table: Table, payload: bytes) -> Arrays:
    arrays: Arrays = {}
    offset = 0
    for name, dtype, shape in table:
        count = math.prod(shape)
        if offset + count * dtype.itemsize > len(payload):
            raise WireError(f"array {name!r} of shape {shape} runs past the payload")
        try:
            arrays[name] = np.ndarray(shape, dtype, payload, offset)
        except ValueError as error:  # one length is 0, and the others are beyond what NumPy can multiply
            raise WireError(f"array {name!r} has the impossible shape {shape}") from error
        offset += count * dtype.itemsize
    if offset != len(payload):
        raise WireError(f"{len(payload) - offset} bytes of the payload belong to no array")
    return arrays

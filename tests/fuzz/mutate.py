"""Hostile bytes made from good ones: blind changes, and forgeries that keep the checksums and the structure right."""

import io
import json
import random
import struct
import zipfile
import zlib
from functools import cache
from typing import Any

import zstandard

Json = Any
PREFIX = struct.Struct("<4sBBHIQ")
NUMBERS = (
    0, 1, 2, 3, 127, 128, 255, 256, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip
LARGE = 1 << 24  # bytes: no sample but a bomb has so many
FLOATS = [struct.pack("<f", x) for x in (float("nan"), float("inf"), -float("inf"), -1.0, 3e38, 1e-45, 2.0)]
DEEP = "\x01deep"  # stands for a deeply nested list until the text is written
LONG = "\x01long"  # and this for a number of many digits
VALUES: tuple[Json, ...] = (
    None, True, False, -1, 0, 1, 2, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, 10**400, -(10**30), 0.5, 1e308, float("inf"),
    float("nan"), "", "x", "game_over", "12", "1e999", "\ud800", "x" * 3000, [], {}, [[]], [1, 2], {"round": 1},
    DEEP, LONG,
)  # fmt: skip


def damage(rng: random.Random, data: bytes) -> bytes:
    """One to four blind changes."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(out) + 1)
        length = rng.choice((1, 1, 2, 4, 8, 40))
        match rng.randrange(7):
            case 0:
                out[at : at + 1] = bytes((rng.randrange(256),))
            case 1:
                size = rng.choice((1, 2, 4, 8))
                out[at : at + size] = (rng.choice(NUMBERS) % 256**size).to_bytes(size, rng.choice(("little", "big")))
            case 2:
                del out[at : at + length]
            case 3:
                out[at:at] = rng.randbytes(length)
            case 4:
                out[at:at] = out[rng.randrange(len(out) + 1) :][:length]
            case 5:
                del out[at:]
            case _:
                out[at : at + 4] = rng.choice(FLOATS)
    return bytes(out)


def damage_json(rng: random.Random, value: Json) -> Json:
    """A copy with one place changed."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = rng.choice(list(value))
        match rng.randrange(10):
            case 0:
                return {k: v for k, v in value.items() if k != key}
            case 1:
                return value | {rng.choice(("x", "", "actor", "round")): rng.choice(VALUES)}
            case 2:
                return {(k if k != key else rng.choice(("y", "rows.obs", ""))): v for k, v in value.items()}
            case _:
                return value | {key: damage_json(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.85:
        at = rng.randrange(len(value))
        match rng.randrange(8):
            case 0:
                return value[:at] + value[at + 1 :]
            case 1:
                return [*value, value[at]]
            case _:
                return [*value[:at], damage_json(rng, value[at]), *value[at + 1 :]]
    return rng.choice(VALUES)


def json_text(rng: random.Random, value: Json) -> bytes:
    """Its text, with what no JSON writer would write."""
    text = json.dumps(value, separators=(",", ":"))
    if DEEP[1:] in text:
        depth = rng.choice((3, 200, 480, 900, 30_000))
        text = text.replace(json.dumps(DEEP), "[" * depth + "]" * depth)
    return text.replace(json.dumps(LONG), "9" * rng.choice((20, 400, 4300, 5000))).encode()


@cache
def _zeros(size: int) -> bytes:
    packer = zstandard.ZstdCompressor(level=1).compressobj(size=size)
    return b"".join([packer.compress(bytes(1 << 24)) for _ in range(size >> 24)] + [packer.flush()])


def bomb(kind: int) -> bytes:
    """A small message that is right in all its parts, and has a gigabyte of zeros."""
    size = 1 << 30
    header = json.dumps({"meta": {"version": 1}, "arrays": [["a", "uint8", [size]]]}, separators=(",", ":")).encode()
    return seal(PREFIX.pack(b"RIQX", 1, kind, 1, len(header), size) + header + _zeros(size))


def seal(body: bytes) -> bytes:
    """With the right checksum."""
    return body + struct.pack("<I", zlib.crc32(body))


def forge_packet(rng: random.Random, data: bytes) -> bytes:
    """A message of the wire that somebody has changed who knows the format."""
    chance = rng.random()
    if chance < 0.1:
        return damage(rng, data)
    return seal(damage(rng, data[:-4])) if chance < 0.3 else _forge_parts(rng, data)


def _forge_parts(rng: random.Random, data: bytes) -> bytes:
    magic, version, kind, flags, header_length, size = PREFIX.unpack_from(data)
    header = json.loads(data[PREFIX.size : PREFIX.size + header_length])
    payload = data[PREFIX.size + header_length : -4]
    if size > LARGE:
        return data
    if flags & 1:
        payload = zstandard.decompress(payload)
    what = rng.choices(range(6), k=rng.choice((1, 1, 2, 3)))
    if 0 in what:
        version, kind = rng.choice(((version, rng.randrange(9)), (rng.randrange(256), kind)))
    if 1 in what:
        payload = damage(rng, payload) if rng.random() < 0.5 else special_number(rng, payload)
    if 2 in what:
        header["meta"] = damage_json(rng, header["meta"])
    if 3 in what:
        header["arrays"] = damage_json(rng, header["arrays"])
    text, size = json_text(rng, header), len(payload)
    if 4 in what:
        size = rng.choice(NUMBERS)
    if 5 in what:
        flags = rng.choice((0, 1, 1, 2, 3, 0xFFFF))
    if flags & 1 and rng.random() < 0.95:
        payload = zstandard.ZstdCompressor(level=1, write_content_size=rng.random() < 0.9).compress(payload)
    return seal(PREFIX.pack(magic, version, kind, flags, len(text), size) + text + payload)


def special_number(rng: random.Random, payload: bytes) -> bytes:
    """Of the same length, with a number that few expect."""
    if len(payload) < 8:
        return payload
    at = rng.randrange(len(payload) // 4) * 4
    number = rng.choice((*FLOATS, *(struct.pack("<I", n % 2**32) for n in NUMBERS)))
    return payload[:at] + number + payload[at + 4 :]


def forge_archive(rng: random.Random, data: bytes) -> bytes:
    """A zip archive with right checksums in which one file is not as it was."""
    if rng.random() < 0.3 or not zipfile.is_zipfile(io.BytesIO(data)):
        return damage(rng, data)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = {info.filename: archive.read(info) for info in archive.infolist()}
    names = sorted(files)
    name = rng.choice((*names, *(n for n in names if n.endswith(".pkl")), *(n for n in names if n.endswith(".pkl"))))
    match rng.randrange(5):
        case 0:
            del files[name]
        case 1:
            files[rng.choice(("x/data.pkl", "archive/data/9", "../evil", "x"))] = files[name]
        case _:
            files[name] = damage(rng, files[name])
    method = zipfile.ZIP_DEFLATED if rng.random() < 0.1 else zipfile.ZIP_STORED
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return out.getvalue()


def damage_lines(rng: random.Random, data: bytes) -> bytes:
    """A text of comma-separated lines with another cell, or with blind changes."""
    if rng.random() < 0.3:
        return damage(rng, data)
    lines = data.split(b"\n")
    at = rng.randrange(1, len(lines))
    cells = lines[at].split(b",")
    wrong = (
        b"", b"-1", b"nan", b"inf", b"1e999", b"9" * 400, b"9" * 5000, b"1_0", b" 1", b"\xd9\xa3", b'"x"', b"=1+1",
        b"1.5",
    )  # fmt: skip
    cells[rng.randrange(len(cells))] = rng.choice(wrong)
    lines[at] = b",".join(cells)
    return b"\n".join(lines)

"""Finds for each of our keys a command that fails if the key holds a value of another type than ours.

Our Redis users have no right to use the command TYPE.
"""

import re

# See memory/broker/transport.py.
_KEY = re.compile(rb"riqx:\{[^\0]{1,500}\}(?::[^:]+)?(?::evaluation)?(?::(\w+))?(?::\d+)?")
_HASH, _STRING, _STREAM = ("HGET", "run_id"), ("GET",), ("XREVRANGE", "+", "-", "COUNT", "0")
_PROBES: dict[bytes, tuple[str, ...]] = {
    b"actors": _STREAM,
    b"versions": _STREAM,
    b"weights": _STRING,
    b"log": _STREAM,
    b"state": _HASH,
    b"actor": _STRING,
    b"quarantine": _STREAM,
}


def probes(arguments: tuple[object, ...]) -> dict[str, tuple[str, ...]]:
    """Return our keys among a command's arguments, each with a command that fails if its value is of another type."""
    found = {}
    for argument in arguments:
        text = argument.encode() if isinstance(argument, str) else argument
        if isinstance(text, bytes) and len(text) < 1000 and (key := _KEY.fullmatch(text)):
            name, *more = _probe(text, key[1])
            found[text.decode(errors="replace")] = (name, text.decode(errors="replace"), *more)
    return found


def _probe(key: bytes, kind: bytes | None) -> tuple[str, ...]:
    if kind in _PROBES:
        return _PROBES[kind]
    return _STRING if key.endswith((b"}:learner", b"}:leader")) else _HASH

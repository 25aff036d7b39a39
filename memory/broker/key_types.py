"""Finds keys that hold a value of another type than ours.

For each of our keys there is a command that fails then: our Redis users have no right to use the command TYPE.
"""

import re
from collections.abc import Callable
from typing import Any

_WRONG_TYPE = "WRONGTYPE"  # in errors of commands, and of scripts

# See memory/broker/transport.py.
_KEY = re.compile(
    rb"riqx:\{[^\0]{1,500}\}(?::[^:]+)?(?::evaluation|:inference)?(?::(\w+))?(?::\d+|:secret)?(?::address)?"
)
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


def is_wrong_type(error: Exception) -> bool:
    """Return whether a command met a value of another type than ours."""
    return _WRONG_TYPE in str(error)


def explain_type(args: tuple[Any, ...], is_refused: Callable[[tuple[str, ...]], bool]) -> str:
    """Return an explanation for a command that met a value of another type than ours.

    `is_refused` returns whether the server refuses a probe for that reason.
    """
    known = probes(args)
    wrong = " and ".join(key for key, probe in known.items() if is_refused(probe)) or " or ".join(known)
    return (
        f"the Redis key {wrong} holds another type of value than this program writes there, so another program has "
        "written it: delete it with redis-cli, and start again what has stopped"
    )


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

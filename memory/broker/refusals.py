"""What a server's refusal of a command means, and what a person can do about it."""

from collections.abc import Callable
from typing import Any

from rainbow_iqn_apex.memory.broker.key_types import probes

_WRONG_TYPE = "WRONGTYPE"  # in errors of commands, and of scripts
# Errors of a server that may be able to write again soon, and what a person can do about each. redis-py leaves the
# first word of some out.
_CANNOT_WRITE = {
    "used memory > 'maxmemory'": "has no room: raise its maxmemory (docs/access.md, as administrator)",
    "MISCONF": "cannot write its file: make room on its disk, or see its log",
    "BUSY Redis": "is busy with somebody's script that does not end: `script kill` (docs/access.md, as administrator)",
}


def is_wrong_type(error: Exception) -> bool:
    """Return whether a command met a value of another type than ours."""
    return _WRONG_TYPE in str(error)


def cannot_write(error: Exception) -> str | None:
    """Return why a server cannot write for a time, None for other errors."""
    said = str(error)
    return next((how for words, how in _CANNOT_WRITE.items() if words in said), None)


def explain_type(args: tuple[Any, ...], is_refused: Callable[[tuple[str, ...]], bool]) -> str:
    """Return an explanation for a command that met a value of another type than ours.

    `is_refused` returns whether the server refuses a probe for that reason.
    """
    known = probes(args)
    wrong = " and ".join(key for key, probe in known.items() if is_refused(probe)) or " or ".join(known)
    return (
        f"the Redis key {wrong} holds another type of value than this program writes there, so somebody else has "
        "written it: delete it with redis-cli, and start again what has stopped"
    )

"""The stream of actors of a run: each adds its number with its first message, and a learner finds the actors there."""

import re
from typing import NamedTuple

from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.transport import READ_BYTES, Keys, Scripts
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS

_END = b"18446744073709551615-18446744073709551615"  # the greatest id


class Registered(NamedTuple):
    """The actors that have a log, and the position in their stream after which others will come."""

    actors: set[int]
    position: bytes


def every_actor(_actor: int) -> bool:
    """Return that an actor is read, whatever its number is."""
    return True


def registered_actors(client: Client, keys: Keys) -> Registered:
    """Read the stream of actors to its end; ignore entries with numbers that no actor of ours can have."""
    scripts, actors, position = Scripts(client), set(), b"0-0"
    while found := scripts.read({keys.actors: position}, READ_BYTES):
        entries = found[0][1]
        actors |= {number for entry in entries if (number := actor_number(entry.data)) is not None}
        position = entries[-1].id
    return Registered(actors, position)


def actor_number(text: bytes) -> int | None:
    """Parse an actor's number as an actor writes it; None for anything else."""
    return int(text) if re.fullmatch(rb"[0-9]{1,9}", text) and int(text) < MAX_ACTORS else None


def register_anew(client: Client, keys: Keys, token: bytes) -> None:
    """Write the stream of actors anew if no new actor could come, for the learner with this lease.

    Another client may have added an entry with an id after which Redis gives no other.
    """
    scripts = Scripts(client)
    if scripts.passed({keys.actors: _END})[keys.actors] == _END:
        scripts.enlist(keys, token, sorted(registered_actors(client, keys).actors))

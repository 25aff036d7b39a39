"""Reads the state that an actor keeps in Redis, as far as a learner needs it.

The state is stored in one step with the actor's messages, so it is right once all messages before it have been read.
"""

from typing import NamedTuple, cast

from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.wire import WireError, decode_meta


class RoundUnderWay(NamedTuple):
    """How far an actor has come."""

    number: int  # it has played all rounds before this one to their end
    begun: bool


def round_under_way(client: Client, keys: Keys, actor: int, most: int) -> RoundUnderWay | None:
    """Return the round that an actor plays, None if it has no state.

    Raises WireError for a state that names no round up to `most`.
    """
    state = cast(bytes | None, client.hget(keys.state(actor), "state"))
    return None if state is None else round_in(state, most)


def round_in(state: bytes, most: int) -> RoundUnderWay:
    """Return the round in an actor's state; raises WireError for a state that names no round up to `most`."""
    meta = decode_meta(state)
    number = meta.get("round")
    if type(number) is not int or not 0 <= number <= most:
        raise WireError("it names no round that can have begun")
    return RoundUnderWay(number, begun=meta.get("round_step") != 0)

"""Stores unreadable messages in Redis for a person to look at; training leaves these messages out.

    riqx:{name}:<id>:quarantine:<actor>   stream, entry id = that of the message in the actor's log
        reason   why, at most 300 characters
        bytes    size of the message
        data     its first 16 KiB

The newest 32 of an actor are kept, half a megabyte at most. A resumed learner reads the log and these messages again;
none is kept twice, as each copy has the id of its message.
"""

from contextlib import suppress

from rainbow_iqn_apex.memory.broker.connection import BrokerError, Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.throttled_counter import ThrottledCounter

_KEPT_MESSAGES = 32  # of an actor
_KEPT_BYTES = 1 << 14  # of a message
_REASON_LENGTH = 300


class Quarantine(ThrottledCounter):
    """Keeps and counts unreadable messages; prints a line for the first, then at most one line every ten seconds."""

    def __init__(self, client: Client, keys: Keys) -> None:
        super().__init__(lambda new, count: f"Left out {new} unreadable, {count} so far; the newest is {self._newest}")
        self._client = client
        self._keys = keys
        self._newest = ""

    def add(self, actor: int, entry_id: bytes, data: bytes, reason: str, size: int | None = None) -> None:
        """Keep a copy of a message of an actor's log; `data` may be the beginning of one of `size` bytes."""
        reason = ascii(reason)[1:-1][:_REASON_LENGTH]  # a reason may quote the message, which may hold anything
        key = self._keys.quarantine(actor)
        self._newest = (
            f"message {entry_id.decode().removesuffix('-0')} of {self._keys.title(actor)} (copy in {key}): {reason}"
        )
        kept = ("reason", reason, "bytes", len(data) if size is None else size, "data", data[:_KEPT_BYTES])
        with suppress(BrokerError):  # the copy exists already; or Redis cannot write, and training goes on without it
            self._client.once("XADD", key, "MAXLEN", _KEPT_MESSAGES, entry_id, *kept)
        self.more()

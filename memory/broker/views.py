"""Listens to what actors see: each publishes it on a channel of its own, and only while a client listens there."""

from collections.abc import Set
from contextlib import suppress
from typing import Any

from rainbow_iqn_apex.memory.broker.connection import BrokerError, Client, ReplyTooLargeError

_WAIT_S = 0.5  # for a message


class ViewListener:
    """Listens on a connection that gives up at once; one thread may use it, and must `close` it in the end."""

    def __init__(self, client: Client) -> None:
        self._client = client.aside()
        pubsub: Any = self._client.pubsub  # redis-py declares no types
        self._pubsub = pubsub()
        self._channels: set[str] = set()

    def listen(self, channels: Set[str]) -> None:
        """Listen to these channels alone; raises BrokerError if that fails."""
        if gone := self._channels - channels:
            self._pubsub.unsubscribe(*gone)
        if more := channels - self._channels:
            self._pubsub.subscribe(*more)
        self._channels = set(channels)

    def next(self, most: int) -> tuple[str, bytes] | None:
        """Return a message with its channel, or None after a moment without any.

        Raises BrokerError if the connection fails, or a message has more than `most` bytes.
        """
        try:
            with self._client.replies_up_to(most):
                found = self._pubsub.get_message(timeout=_WAIT_S)
        except ReplyTooLargeError as error:
            raise BrokerError(f"a message of more than {most} bytes") from error
        if not found or found["type"] != "message":
            return None
        return found["channel"].decode("utf-8", "replace"), found["data"]

    def close(self) -> None:
        """Close the connection."""
        with suppress(BrokerError):
            self._pubsub.close()
            self._client.close()

"""Listens to what actors see: each publishes it on a channel of its own, and only while a client listens there."""

import itertools
from collections import defaultdict
from collections.abc import Hashable, Set
from contextlib import suppress
from typing import Any

from rainbow_iqn_apex.memory.broker.connection import Aside, BrokerError, Client, ReplyTooLargeError

_WAIT_S = 0.5  # for a message


class ViewListener:
    """Listens on connections that give up at once; one thread may use it, and must `close` it in the end."""

    def __init__(self, client: Client) -> None:
        self._client = client.aside()
        self._listening: dict[Hashable, _Listening] = {}  # by the server
        self._turns = itertools.count()

    def listen(self, channels: Set[str]) -> None:
        """Listen to these channels alone; raises BrokerError if that fails."""
        wanted = defaultdict(set)
        for channel in channels:
            wanted[self._client.server_of(channel)].add(channel)
        for server in self._listening.keys() - wanted.keys():
            self._listening.pop(server).close()
        for server, names in wanted.items():
            if server not in self._listening:
                self._listening[server] = _Listening(self._client.of(min(names)))
            self._listening[server].listen(names)

    def next(self, most: int) -> tuple[str, bytes] | None:
        """Return a message with its channel, or None after a moment without any.

        Raises BrokerError if the connection fails, or a message has more than `most` bytes.
        """
        turn, listening = next(self._turns), list(self._listening.values())
        try:
            with self._client.replies_up_to(most):
                found = listening[turn % len(listening)].next(_WAIT_S / len(listening))
        except ReplyTooLargeError as error:
            raise BrokerError(f"a message of more than {most} bytes") from error
        if not found or found["type"] != "message":
            return None
        return found["channel"].decode("utf-8", "replace"), found["data"]

    def close(self) -> None:
        """Close the connection."""
        with suppress(BrokerError):
            for listening in self._listening.values():
                listening.close()
            self._client.close()


class _Listening:
    """Listens on one connection, to a server."""

    def __init__(self, server: Aside) -> None:
        pubsub: Any = server.pubsub  # redis-py declares no types
        self._pubsub = pubsub()
        self._channels: set[str] = set()

    def listen(self, channels: set[str]) -> None:
        if gone := self._channels - channels:
            self._pubsub.unsubscribe(*gone)
        if more := channels - self._channels:
            self._pubsub.subscribe(*more)
        self._channels = set(channels)

    def next(self, seconds: float) -> Any:
        return self._pubsub.get_message(timeout=seconds)

    def close(self) -> None:
        self._pubsub.close()

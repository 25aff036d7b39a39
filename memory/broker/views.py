"""Reads what actors see: each actor writes to its own key, and only while a client listens to a channel of that name.

So a client without the right to write can ask for views, and nobody needs the right to publish.
"""

from collections import defaultdict
from collections.abc import Hashable, Set
from contextlib import suppress
from typing import Any

from rainbow_iqn_apex.memory.broker.connection import Aside, BrokerError, Client, ReplyTooLargeError
from rainbow_iqn_apex.memory.broker.reports import content_of

_WAIT_S = 0.5  # between two looks


class ViewListener:
    """Listens on connections that give up at once; one thread may use it, and must `close` it in the end."""

    def __init__(self, client: Client) -> None:
        self._client = client.aside()
        self._listening: dict[Hashable, _Listening] = {}  # by the server
        self._channels: Set[str] = frozenset()
        self._seen: dict[str, bytes] = {}  # by channel

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
        self._channels = frozenset(channels)
        self._seen = {channel: view for channel, view in self._seen.items() if channel in channels}

    def next(self, most: int) -> dict[str, bytes]:
        """Return the views that have come since the last look, by channel, after a moment; `most` bytes of each.

        Raises BrokerError if the connection fails, or somebody has sent a message of more bytes to a channel.
        """
        try:
            with self._client.replies_up_to(most):
                for listening in self._listening.values():
                    listening.wait(_WAIT_S / len(self._listening))
        except ReplyTooLargeError as error:
            raise BrokerError(f"a message of more than {most} bytes") from error
        channels = sorted(self._channels)
        replies = self._client.batch([("GETRANGE", channel, 0, most - 1) for channel in channels]) if channels else []
        views = {channel: content_of(reply) for channel, reply in zip(channels, replies, strict=True)}
        found = {channel: view for channel, view in views.items() if view and view != self._seen.get(channel)}
        self._seen |= found
        return found

    def close(self) -> None:
        """Close the connection."""
        with suppress(BrokerError):
            for listening in self._listening.values():
                listening.close()
            self._client.close()


class _Listening:
    """Listens on one connection, to a server: the actors there look whether somebody does."""

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

    def wait(self, seconds: float) -> None:
        """Wait, and connect again if the connection has broken; what others send to the channels is ignored."""
        self._pubsub.get_message(timeout=seconds)

    def close(self) -> None:
        self._pubsub.close()

"""Sends each command to the server of its key, which may be another one after a failover, or when a slot has moved.

redis-py's own client of clusters is not used: it lets errors of a failover through to its callers, asks for the keys of
every XREAD, and its WAIT asks another node than the one that was written to.
"""

import copy
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

import redis
from redis.exceptions import AskError, ClusterDownError, MovedError, ReadOnlyError, TryAgainError

from rainbow_iqn_apex.memory.broker.connection import (
    CONNECTION_ERRORS,
    Argument,
    Aside,
    Away,
    Client,
    send_together,
)
from rainbow_iqn_apex.memory.broker.places import Address, Place, Places
from rainbow_iqn_apex.memory.broker.slots import slot_of

_REDIRECTIONS = 5  # of a command, before a moment's wait
_WAIT_MS = 500  # for a replica to confirm a commit
_NO_REPLICA_S = 10.0  # after no replica has confirmed, in which none is waited for
_FAILED_S = 60.0  # after a replica has failed, in which others are asked
_BEGINNING = "riqx:{"  # of all our keys
# Errors of a server that is about to be, or to have, another one's place: a moment later that one answers. A script's
# error may have the word in its middle.
_ELSEWHERE = ("READONLY", "UNBLOCKED", "NOREPLICAS", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN")

Command = tuple[tuple[Any, ...], dict[str, Any]]


class Route:
    """The connections to all servers, and the way to that of a slot."""

    def __init__(self, places: Places, open_node: Callable[[Address, bool], redis.Redis]) -> None:
        """`open_node` opens a connection, to a replica if its second argument is set."""
        self.places = places
        self._open_node = open_node
        self._nodes: dict[tuple[Address, bool], redis.Redis] = {}
        self._lock = threading.Lock()
        self._next_wait: dict[Address, float] = {}  # by master, for a replica
        self._next_try: dict[Address, float] = {}  # by replica that has failed

    def send(self, slot: int, command: Command, *, durable: bool = False) -> Any:
        """Send a command to a slot's master; raises redis.ConnectionError if the master is to be looked for again."""
        for _ in range(_REDIRECTIONS):
            confirmed = durable and self._has_replica(slot)
            place = self.place(slot)
            try:
                return self._send_once(place, command, confirmed=confirmed)
            except MovedError as moved:
                self.places.move(slot, _target(moved, place))
            except redis.ResponseError as error:
                if not _is_elsewhere(error):
                    raise
                self.places.look()
                raise redis.ConnectionError(f"{type(error).__name__}: {error}") from error
            except CONNECTION_ERRORS:
                self.places.look()
                raise
        raise redis.ConnectionError(f"the nodes of the cluster disagree about who has slot {slot}")

    def send_to_replica(self, slot: int, command: Command) -> Any:
        """Send a command that reads to a replica of a slot, to the master if there is none, or it fails.

        Processes share the replicas. One that has failed is left alone for a while: each try may take seconds.
        """
        args, options = command
        place, now = self.places.of(slot), time.monotonic()
        able = [replica for replica in place.replicas if now >= self._next_try.get(replica, 0.0)] if place else []
        if able:
            replica = able[os.getpid() % len(able)]
            try:
                return self.node(replica, reads=True).execute_command(*args, **options)  # type: ignore[no-untyped-call]
            except redis.RedisError:
                self._next_try[replica] = time.monotonic() + _FAILED_S
                self.places.look()
        return self.send(slot, command)

    def place(self, slot: int) -> Place:
        """Return the servers of a slot; raises redis.ConnectionError if it has none."""
        if not (place := self.places.of(slot)):
            self.places.look()
            if not (place := self.places.of(slot)):
                raise redis.ConnectionError(f"no server of the cluster has slot {slot}")
        return place

    def _has_replica(self, slot: int) -> bool:
        """Return whether a replica can confirm a commit; looks now and then for one that has come."""
        if time.monotonic() < self._next_wait.get(self.place(slot).master, 0.0):
            return False
        if not self.place(slot).replicas:
            self.places.look()
        if (place := self.place(slot)).replicas:
            return True
        self._next_wait[place.master] = time.monotonic() + _NO_REPLICA_S
        return False

    def _send_once(self, place: Place, command: Command, *, confirmed: bool) -> Any:
        """Send a command to a slot's master, or to its next master where that has the keys already."""
        try:
            return self._send_to_master(place, command, confirmed=confirmed)
        except MovedError:
            raise
        except AskError as ask:
            return _reply(send_together(self.node(_target(ask, place)), [(("ASKING",), {}), command])[1])

    def _send_to_master(self, place: Place, command: Command, *, confirmed: bool) -> Any:
        args, options = command
        node = self.node(place.master)
        if not confirmed:
            return node.execute_command(*args, **options)  # type: ignore[no-untyped-call]
        reply, replicas = send_together(node, [command, (("WAIT", 1, _WAIT_MS), {})])
        if replicas == 0:
            self._next_wait[place.master] = time.monotonic() + _NO_REPLICA_S
            where = f"{place.master.host}:{place.master.port}"
            print(f"No replica of {where} has confirmed in time: what it loses now may be lost", flush=True)
        answer = _reply(reply)
        _reply(replicas)  # raises where the Redis user may not wait
        return answer

    def batch(self, slots: Sequence[int], commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        """Send commands for these slots, to each server together, those of slots that have moved once more."""
        replies: dict[int, Any] = dict.fromkeys(range(len(commands)))
        left = list(replies)
        for _ in range(2):
            masters = {i: self.place(slots[i]).master for i in left}
            for master in set(masters.values()):
                group = [i for i in left if masters[i] == master]
                replies |= zip(group, self._batch(master, [commands[i] for i in group]), strict=True)
            left = [i for i in left if isinstance(replies[i], MovedError)]
            for i in left:
                self.places.move(slots[i], _target(replies[i], Place(masters[i])))
        return list(replies.values())

    def _batch(self, master: Address, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        try:
            replies = send_together(self.node(master), [(command, {}) for command in commands])
        except CONNECTION_ERRORS:
            self.places.look()
            raise
        if any(isinstance(reply, redis.ResponseError) and _is_elsewhere(reply) for reply in replies):
            self.places.look()
        return replies

    def node(self, address: Address, *, reads: bool = False) -> redis.Redis:
        """Return the connection to a server."""
        with self._lock:
            if (address, reads) not in self._nodes:
                self._nodes[address, reads] = self._open_node(address, reads)
            return self._nodes[address, reads]

    def leave_connections(self) -> None:
        """As `Client.leave_connections`, to all servers."""
        with self._lock:
            for node in self._nodes.values():
                node.connection_pool.disconnect(inuse_connections=False)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            for node in self._nodes.values():
                node.close()


def _reply(reply: Any) -> Any:
    if isinstance(reply, Exception):
        raise reply
    return reply


def _target(moved: AskError, place: Place) -> Address:
    """Return where a node sends a command; a node that does not know its own host names none."""
    return Address(moved.host or place.master.host, moved.port)


def _is_elsewhere(error: redis.ResponseError) -> bool:
    kinds = (ClusterDownError, TryAgainError, ReadOnlyError)
    return isinstance(error, kinds) or any(word in str(error) for word in _ELSEWHERE)


class _Routed:
    """Share what connections to several servers have in common; `_slot` None: that of the key of each command."""

    _route: Route
    _slot: int | None = None

    def _slot_for(self, args: Sequence[object]) -> int:
        if self._slot is not None:
            return self._slot
        keys = (arg.decode(errors="replace") if isinstance(arg, bytes) else arg for arg in args)
        key = next((key for key in keys if isinstance(key, str) and key.startswith(_BEGINNING)), None)
        if key is None:
            raise TypeError(f"{args[:1]} names no key: it needs the connection to one server, see `servers`")
        return slot_of(key)

    def _at(self, slot: int) -> Self:
        pinned = copy.copy(self)
        pinned._slot = slot
        return pinned

    def of(self, key: str | bytes) -> Self:
        """Return the connection to the server of a key, wherever that is."""
        return self._at(slot_of(key))

    def servers(self) -> Sequence[Self]:
        """Return a connection to each master."""
        return [self._at(slot) for slot in self._route.places.slots()]

    def close(self) -> None:
        """Close all connections."""
        self._route.close()

    def __del__(self) -> None:
        """Close nothing: copies share the connections."""


class RoutedClient(_Routed, Client):
    """A `Client` of a cluster, or of a service that Sentinels watch."""

    _is_durable = False
    _reads_replica = False

    @classmethod
    def open(cls, seed: Client, route: Route) -> "RoutedClient":
        """Return a client beside `seed`, which is connected to one of the servers."""
        client = cls(connection_pool=seed.connection_pool)
        client.away, client.stop, client.where, client.mode = seed.away, seed.stop, seed.where, seed.mode
        client._route = route
        return client

    def durable(self) -> "RoutedClient":
        """As `Client.durable`."""
        client = copy.copy(self)
        client._is_durable = True
        return client

    def replica(self) -> "RoutedClient":
        """As `Client.replica`."""
        client = copy.copy(self)
        client._reads_replica = True
        return client

    def leave_connections(self) -> None:
        """As `Client.leave_connections`."""
        self._route.leave_connections()

    def _send(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        slot = self._slot_for(args)
        if self._reads_replica:
            return self._route.send_to_replica(slot, (args, options))
        return self._route.send(slot, (args, options), durable=self._is_durable)


class RoutedAside(_Routed, Aside):
    """An `Aside` of a cluster, or of a service that Sentinels watch."""

    @classmethod
    def open(cls, away: Away, seed: redis.Redis, route: Route) -> "RoutedAside":
        """Return a connection that gives up at once."""
        aside = cls(connection_pool=seed.connection_pool)
        aside.away, aside._route = away, route
        return aside

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send a command."""
        return self._route.send(self._slot_for(args), (args, options))

    def batch(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        """As `Aside.batch`."""
        return self._route.batch([self._slot_for(command) for command in commands], commands)

    def server_of(self, key: str) -> Address:
        """As `Aside.server_of`."""
        return self._route.place(slot_of(key)).master

    def pubsub(self, **options: Any) -> Any:
        """Return a listener on the server of the slot."""
        master = self._route.place(self._slot_for(())).master
        return self._route.node(master).pubsub(**options)  # type: ignore[no-untyped-call]

"""Opens the connections to a run's servers: one server, a cluster, or a service that Sentinels watch."""

import copy
import os
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Any, NamedTuple, Self

import redis
from redis.exceptions import AskError, ClusterDownError, MovedError, ReadOnlyError, TryAgainError

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.broker.access import SENTINEL_PASSWORD, SENTINEL_USERNAME, Access, Server
from rainbow_iqn_apex.memory.broker.connection import (
    ASIDE_S,
    CONNECTION_ERRORS,
    Argument,
    Aside,
    Away,
    BrokerError,
    Client,
    connect,
    open_aside,
    open_once,
    send_together,
)
from rainbow_iqn_apex.memory.broker.keys import SLOTS, slot_of
from rainbow_iqn_apex.memory.broker.server_errors import explain_denial, explain_tls

_MOST_BYTES = 1 << 24  # of a reply
_UNKNOWN = ("", "?")  # in the place of a host: that of the node that was asked


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int


class Place(NamedTuple):
    """The servers of a slot."""

    master: Address
    replicas: tuple[Address, ...] = ()


class Places:
    """Where the servers of each slot are, as a node of a cluster told last; every thread may use it.

    With a `service`, the seeds are Sentinels that watch it: its one master has all slots. Raises UserError if the user
    may not ask.
    """

    def __init__(self, seeds: Sequence[Address], access: Access, service: str = "") -> None:
        self._seeds = seeds
        self._access = access
        self._service = service
        self._lock = threading.Lock()
        self._places: dict[int, Place] = {}
        self._looks = 0
        self.failure: Exception | None = None  # the last one

    def of(self, slot: int) -> Place | None:
        """Return the servers of a slot, None if it has none."""
        return self._places.get(slot)

    def look(self) -> None:
        """Ask again; what was found before stays where none answers. Of threads that ask together, one asks for all."""
        looks = self._looks
        with self._lock:
            if looks == self._looks:
                self._places = self._ask() or self._places
                self._looks += 1

    def _ask(self) -> dict[int, Place]:
        """Ask servers, each time another one first: one that is cut off would tell of former times again and again."""
        places = set() if self._service else set(self._places.values())
        known = sorted({address for place in places for address in (place.master, *place.replicas)})
        addresses = list(dict.fromkeys([*known, *self._seeds]))
        first = self._looks % len(addresses)
        for address in addresses[first:] + addresses[:first]:
            try:
                with closing(open_aside(*address, self._access)) as aside, aside.replies_up_to(_MOST_BYTES):
                    if found := _ask_sentinel(aside, self._service) if self._service else _ask_node(aside, address):
                        return found
            except BrokerError as error:
                if denied := explain_denial(str(error), of_sentinel=bool(self._service)):
                    raise UserError(denied) from error
                self.failure = error
        return {}

    def move(self, slot: int, master: Address) -> None:
        """Note a slot's new master, of which a node has told; it brings the replicas of its other slots."""
        with self._lock:
            same = next((place for place in set(self._places.values()) if place.master == master), Place(master))
            self._places[slot] = same

    def slots(self) -> list[int]:
        """Return a slot of each master."""
        return sorted({place.master: slot for slot, place in sorted(self._places.items(), reverse=True)}.values())

    @property
    def missing(self) -> int:
        """Return how many slots no node has."""
        return SLOTS - len(self._places)


def _send(node: Aside, *words: str) -> Any:
    """Send words one by one, so that redis-py, which knows commands of two words, leaves the reply as it is."""
    return node.execute_command(*words)  # type: ignore[no-untyped-call]


def _ask_node(node: Aside, asked: Address) -> dict[int, Place]:
    def address(found: Any) -> Address:
        host = (found[0] or b"").decode()
        return Address(asked.host if host in _UNKNOWN else host, int(found[1]))

    places: dict[int, Place] = {}
    for first, last, master, *replicas in _send(node, "CLUSTER", "SLOTS"):
        place = Place(address(master), tuple(map(address, replicas)))
        places |= dict.fromkeys(range(max(0, int(first)), min(int(last) + 1, SLOTS)), place)
    return places


def _ask_sentinel(sentinel: Aside, service: str) -> dict[int, Place]:
    master = _send(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", service)
    if master is None:
        return {}
    found = _send(sentinel, "SENTINEL", "REPLICAS", service)
    replicas = [dict(zip(fields[::2], fields[1::2], strict=True)) for fields in found]
    up = [replica for replica in replicas if b"down" not in replica[b"flags"]]
    place = Place(
        Address(master[0].decode(), int(master[1])),
        tuple(Address(replica[b"ip"].decode(), int(replica[b"port"])) for replica in up),
    )
    return dict.fromkeys(range(SLOTS), place)


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

    def __init__(
        self, places: Places, access: Access, away: Away, timeout: float = 0.0, *, reads_need_leave: bool
    ) -> None:
        """Replicas of a cluster must be asked for leave to read there: `reads_need_leave`."""
        self.places = places
        self._access = access
        self._away = away
        self._timeout = timeout
        self._reads_need_leave = reads_need_leave
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
        place = self.places.of(slot)
        now = time.monotonic()
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
                self._nodes[address, reads] = open_once(
                    redis.Redis,
                    *address,
                    self._access,
                    self._away,
                    self._timeout,
                    reads=reads and self._reads_need_leave,
                )
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
        client.away = seed.away
        client.stop = seed.stop
        client.where = seed.where
        client.mode = seed.mode
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
        aside.away = away
        aside._route = route
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


def open_servers(server: Server, stop: threading.Event | None = None, away_s: float | None = None) -> Client:
    """Connect as `connect` does, to all servers where several are named, or one answers as the node of a cluster."""
    if server.service:
        return _open_service(server, stop, away_s)
    nodes = [Address(server.host, server.port), *(Address(*other) for other in server.others)]
    found = _connect_all(nodes, server, stop, away_s)
    (first, client), *others = found
    if not server.others and client.mode != "cluster":
        return client
    for node, there in found:
        if there.mode != "cluster":
            raise UserError(
                f"{client.where}: {node.host}:{node.port} is no node of a cluster, and several addresses are those of "
                "one: name one server alone, or nodes of a cluster"
            )
    for _, there in others:
        there.close()
    places = Places(nodes, server.access)
    places.look()
    if places.missing:
        raise UserError(
            f"{client.where}: no node of the cluster has {places.missing} of its 16384 slots: give each slot a node, "
            f"as `redis-cli --cluster fix {first.host}:{first.port}` does"
        )
    if server.access.tls:
        _check_certificates(client, server, places)
    return _route(client, places, server.access, reads_need_leave=True)


def _connect_all(
    nodes: Sequence[Address], server: Server, stop: threading.Event | None, away_s: float | None
) -> list[tuple[Address, Client]]:
    """Connect to each node that lets us in; raises UserError, with the first refusal, if there is none."""
    found = []
    refusals = []
    for node in nodes:
        try:
            found.append((node, connect(node.host, node.port, stop, server.access, away_s)))
        except UserError as error:
            refusals.append(error)
    if not found:
        raise refusals[0]
    return found


def _check_certificates(client: Client, server: Server, places: Places) -> None:
    """Raise UserError for a master that the cluster names by a host which is not in that one's certificate."""
    for place in filter(None, map(places.of, places.slots())):
        host, port = place.master
        try:
            with closing(open_aside(host, port, server.access)) as aside:
                aside.ping()
        except BrokerError as error:
            if fault := explain_tls(error):
                raise UserError(f"{client.where}: the cluster names {host}:{port}: {fault}") from error


def _open_service(server: Server, stop: threading.Event | None, away_s: float | None) -> Client:
    sentinels = [Address(server.host, server.port), *(Address(*other) for other in server.others)]
    places = Places(sentinels, server.sentinel, server.service)
    places.look()
    if not (place := places.of(0)):
        raise UserError(f"{server.access.told_by}: {_explain(places.failure, server.service)}")
    client = connect(place.master.host, place.master.port, stop, server.access, away_s)
    return _route(client, places, server.access, reads_need_leave=False)


def _explain(failure: Exception | None, service: str) -> str:
    """Explain why no Sentinel has told of the service's master."""
    if isinstance(failure, redis.AuthenticationError):
        advice = f"{SENTINEL_USERNAME} and {SENTINEL_PASSWORD} must be those of a user of the Sentinels"
        return f"a Sentinel does not let us in ({failure}); {advice}"
    if failure and (fault := explain_tls(failure)):
        return f"of a Sentinel: {fault}"
    return (
        f"no Sentinel there answers, or none knows a master {service!r}: name a Sentinel's host and port, and the "
        "service by the name that it has in sentinel.conf"
    )


def _route(seed: Client, places: Places, access: Access, *, reads_need_leave: bool) -> Client:
    """Return what sends each command to its server."""
    client = RoutedClient.open(seed, Route(places, access, seed.away, reads_need_leave=reads_need_leave))

    def aside() -> Aside:
        away = Away(threading.Event())
        return RoutedAside.open(away, seed, Route(places, access, away, ASIDE_S, reads_need_leave=reads_need_leave))

    client.aside = aside
    return client

"""What processes report of themselves in Redis: reports, views, films of evaluations, and which of them are missing.

A report is one string a process, written over and over. It may be lost at any time, as may a view or a film. So they
use a connection of their own that gives up at once: a process never waits for one, and never ends for one.

An actor writes what it sees, its view, only while a client listens to the channel of that name. So a client without the
right to write can ask for views, and nobody needs the right to publish. Of films there is one string each for the best
and the newest evaluation episode of a run.
"""

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence, Set
from contextlib import closing, suppress
from typing import Any, NamedTuple

from msgspec import Struct

from rainbow_iqn_apex.common.schema import parse, parse_json
from rainbow_iqn_apex.memory.broker.connection import (
    Argument,
    Aside,
    BrokerError,
    Client,
    ReplyTooLargeError,
    ResponseError,
)
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.leases import printable
from rainbow_iqn_apex.memory.broker.record import registered_actors
from rainbow_iqn_apex.memory.broker.scripts import READ_BYTES, sequence_of
from rainbow_iqn_apex.memory.broker.server_errors import is_wrong_type

VIEW_S = 5  # a view is kept: the actor replaces it each second
FAILED = "failed ("  # begins the event in the report of an actor that has failed
_KEPT_S = 24 * 3600  # for people who look for a process that is gone
_MOST_BYTES = 1 << 16  # of a report
_MOST_NAMED = 8


class ServerUse(NamedTuple):
    """Counts what a server holds, of several the fullest, and what all hold of a run."""

    used: int  # bytes
    limit: int  # bytes; 0: none
    entries: int  # in the logs of the run's actors
    unread: int  # of these, that were not read yet


class RawReport(NamedTuple):
    """A report as it was written."""

    data: bytes
    age: float  # seconds since it was written, by the clock of the server alone


class _End(Struct):
    """The fields of a report that show how its process has ended."""

    ended: bool = False
    events: list[tuple[float, str, bool]] = []


def _batch(client: Aside, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
    """Send commands together; return their replies, None of a key of another type, or raise the first other error."""
    replies = [None if is_wrong_type(reply) else reply for reply in client.batch(commands)]
    if error := next((reply for reply in replies if isinstance(reply, BrokerError)), None):
        raise error
    return replies


def _fullness(memory: dict[str, int]) -> tuple[float, int]:
    """Return how full a server is, by its limit if it has one."""
    used = memory["used_memory"]
    return (used / memory["maxmemory"] if memory["maxmemory"] else 0.0, used)


def _is_cut_off(read: Any, log: dict[str, Any]) -> bool:
    """Return whether a log has had messages after the last one read, and holds none of them."""
    last_read = int(read) if isinstance(read, bytes) and re.fullmatch(rb"[0-9]{1,20}", read) else 0
    newest = log["last-entry"]
    return sequence_of(log["last-generated-id"]) > last_read >= (sequence_of(newest[0]) if newest else 0)


class ViewsRefusedError(Exception):
    """The Redis user lacks a right that views need."""


class ReportStore:
    """Writes and reads the reports of a run's processes."""

    def __init__(self, client: Client | Aside, keys: Keys) -> None:
        """Open a connection beside a `Client`; use an `Aside`, which stays open, together with others."""
        self._is_own = isinstance(client, Client)
        self._client = client.aside() if isinstance(client, Client) else client
        self._keys = keys

    def write(self, actor: int | None, report: bytes) -> None:
        """Replace the report of an actor, or of the learner for None; raises BrokerError if that fails."""
        self._client.set(self._key(actor), report, ex=_KEPT_S)

    def write_and_show(self, actor: int, report: bytes, view: bytes) -> bool:
        """Write as `write`, and the actor's view unless it is empty; return whether somebody wants views.

        Raises ViewsRefusedError, when the report is written, if this user lacks a right that views need.
        """
        channel = self._keys.view(actor)
        commands: list[tuple[Argument, ...]] = [("SET", self._key(actor), report, "EX", _KEPT_S)]
        commands.append(("PUBSUB NUMSUB", channel))
        if view:
            commands.append(("SET", channel, view, "EX", VIEW_S))
        written, *rest = self._client.batch(commands)
        if isinstance(written, BrokerError):
            raise written
        for reply in rest:
            if isinstance(reply, BrokerError):
                raise ViewsRefusedError(str(reply))
        return any(listeners for _, listeners in rest[0])

    def read(self, actors: Iterable[int | None], most: int) -> dict[int | None, RawReport]:
        """Return the reports that there are, the first `most` + 1 bytes of each; raises BrokerError if that fails."""
        wanted = list(actors)
        keys = [self._key(actor) for actor in wanted]
        commands = [command for key in keys for command in (("GETRANGE", key, 0, most), ("PTTL", key))]
        replies = _batch(self._client, commands)
        found = zip(wanted, replies[::2], replies[1::2], strict=True)
        return {actor: RawReport(data, max(0.0, _KEPT_S - left / 1000)) for actor, data, left in found if data}

    def failure(self, actor: int) -> str:
        """Return how an actor has failed, empty if it has not, or Redis does not answer."""
        with suppress(BrokerError, ValueError):
            if found := self.read([actor], _MOST_BYTES).get(actor):
                end = parse(parse_json(found.data), _End)
                texts = [printable(text) for _, text, _ in end.events if end.ended]
                return next((text for text in texts if text.startswith(FAILED)), "")
        return ""

    def registered(self) -> set[int]:
        """Return the actors that have sent a message; raises BrokerError if that fails."""
        return set[int]().union(*(registered_actors(self._client, keys).actors for keys in self._keys.every_shard()))

    def server(self, received: dict[int, int]) -> ServerUse:
        """Return what the server holds; `received` has, by actor, the number of the last message that was read.

        Raises BrokerError if the server does not answer, or this user may not ask.
        """
        memories: list[Any] = [server.info("memory") for server in self._client.servers()]
        memory = max(memories, key=_fullness)
        known = [(read, log) for actor, read in received.items() if (log := self._log(actor))]
        unread = sum(max(0, sequence_of(log["last-generated-id"]) - read) for read, log in known)
        return ServerUse(memory["used_memory"], memory["maxmemory"], sum(log["length"] for _, log in known), unread)

    def cut_off(self, actors: Iterable[int]) -> set[int]:
        """Return which of these actors have unread messages that their logs do not hold any more.

        Raises BrokerError if the server does not answer. Logs that the user may not ask of count as whole.
        """
        logs = {actor: log for actor in actors if (log := self._log(actor))}
        fields = [("HGET", self._keys.beside(actor).run, self._keys.read_field(actor)) for actor in logs]
        reads = _batch(self._client, fields) if fields else []
        return {actor for (actor, log), read in zip(logs.items(), reads, strict=True) if _is_cut_off(read, log)}

    def _log(self, actor: int) -> dict[str, Any] | None:
        """Return what the server holds of an actor's log, two of its entries included; None without a right."""
        with suppress(ResponseError, ReplyTooLargeError), self._client.replies_up_to(2 * READ_BYTES):
            found: dict[str, Any] = self._client.xinfo_stream(self._keys.log(actor))
            return found
        return None

    def close(self) -> None:
        """Close the connection that was opened for this store."""
        if self._is_own:
            with suppress(BrokerError):
                self._client.close()

    def _key(self, actor: int | None) -> str:
        return self._keys.learner_report if actor is None else self._keys.report(actor)


_WAIT_S = 0.5  # between two looks


class _Listening(NamedTuple):
    pubsub: Any
    channels: set[str]


class ViewListener:
    """Listens on connections that give up at once; one thread may use it, and must `close` it in the end."""

    def __init__(self, client: Client) -> None:
        self._client = client.aside()
        self._listening: dict[Hashable, _Listening] = {}  # by the server, whose actors look whether somebody listens
        self._channels: Set[str] = frozenset()
        self._seen: dict[str, bytes] = {}  # by channel

    def listen(self, channels: Set[str]) -> None:
        """Listen to these channels alone; raises BrokerError if that fails."""
        wanted = defaultdict(set)
        for channel in channels:
            wanted[self._client.server_of(channel)].add(channel)
        for server in self._listening.keys() - wanted.keys():
            self._listening.pop(server).pubsub.close()
        for server, names in wanted.items():
            if server not in self._listening:
                node: Any = self._client.of(min(names))  # redis-py declares no types
                self._listening[server] = _Listening(node.pubsub(), set())
            pubsub, before = self._listening[server]
            if gone := before - names:
                pubsub.unsubscribe(*gone)
            if more := names - before:
                pubsub.subscribe(*more)
            self._listening[server] = _Listening(pubsub, names)
        self._channels = frozenset(channels)
        self._seen = {channel: view for channel, view in self._seen.items() if channel in channels}

    def next(self, most: int) -> dict[str, bytes]:
        """Return the views that have come since the last look, by channel, after a moment; `most` bytes of each.

        Raises BrokerError if the connection fails, or somebody has sent a message of more bytes to a channel.
        """
        try:
            with self._client.replies_up_to(most):
                for listening in self._listening.values():  # connects again where needed; what others send is ignored
                    listening.pubsub.get_message(timeout=_WAIT_S / len(self._listening))
        except ReplyTooLargeError as error:
            raise BrokerError(f"a message of more than {most} bytes") from error
        channels = sorted(self._channels)
        replies = _batch(self._client, [("GETRANGE", channel, 0, most - 1) for channel in channels]) if channels else []
        views = zip(channels, replies, strict=True)
        found = {channel: view for channel, view in views if view and view != self._seen.get(channel)}
        self._seen |= found
        return found

    def close(self) -> None:
        """Close the connection."""
        with suppress(BrokerError):
            for listening in self._listening.values():
                listening.pubsub.close()
            self._client.close()


class FilmStore:
    """Writes and reads the films of a run."""

    def __init__(self, client: Client, name: str, run_id: str) -> None:
        self._client = client.aside()
        self._keys = Keys(name, run_id, evaluation=True)

    def write(self, place: str, film: bytes) -> None:
        """Replace the film of this place; raises BrokerError if that fails."""
        self._client.set(self._keys.film(place), film)

    def read(self, places: Iterable[str], most: int) -> dict[str, bytes]:
        """Return the first `most` bytes of the films that there are; raises BrokerError without an answer."""
        wanted = list(places)
        replies = _batch(self._client, [("GETRANGE", self._keys.film(place), 0, most - 1) for place in wanted])
        return {place: data for place, data in zip(wanted, replies, strict=True) if data}

    def close(self) -> None:
        """Close the connection."""
        with suppress(BrokerError):
            self._client.close()


class Commands(NamedTuple):
    """The commands that start the processes of a run; the actors' is that of actor 0."""

    learner: str = "python launch_learner.py"
    actor_0: str = "python launch_actor.py --id-actor 0"

    def actor(self, number: int) -> str:
        """Return the command that starts an actor."""
        return self.actor_0.replace("--id-actor 0", f"--id-actor {number}", 1)


PLAIN_COMMANDS = Commands()  # with all settings at their defaults


class MissingProcesses:
    """Finds out by their leases which processes of a run do not run, for lines about waits; names `actors` alone.

    A killed process counts as running for as long as its lease lasts.
    """

    def __init__(self, client: Client, keys: Keys, actors: Iterable[int], commands: Commands = PLAIN_COMMANDS) -> None:
        self._client = client
        self._keys = keys
        self._actors = list(actors)
        self._commands = commands

    def all(self) -> str:
        """Return the end of a line about waiting: who is not running, and the command to copy; empty if all run."""
        if not self._client.exists(self._keys.learner_lease):
            return f"; the learner is not running: {self._commands.learner}"
        return self.actors()

    def actors(self) -> str:
        """Return the same of the actors alone, for the learner: Redis may come back without the learner's own lease."""
        absent = [actor for actor in self._actors if not self._client.exists(self._keys.actor_lease(actor))]
        if not absent:
            return ""
        with closing(ReportStore(self._client, self._keys)) as reports:
            whys = ((actor, reports.failure(actor)) for actor in absent[:_MOST_NAMED])
            failed = next((f"; actor {actor} has {why}" for actor, why in whys if why), "")
        command = self._commands.actor(absent[0])
        if len(absent) == 1:
            return f"{failed}; actor {absent[0]} is not running: {command}"
        named = ", ".join(map(str, absent[:_MOST_NAMED])) + (" ..." if len(absent) > _MOST_NAMED else "")
        todo = f"each to be started with its --id-actor: {command}"
        return f"{failed}; {len(absent)} actors are not running ({named}), {todo}"

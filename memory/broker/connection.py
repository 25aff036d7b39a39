"""Connect to the Redis server, try commands again, and give them up in time."""

import math
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from typing import Any, Final, TypeVar

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from rainbow_iqn_apex.common import waiting
from rainbow_iqn_apex.common.errors import RunError, Stopped, UserError
from rainbow_iqn_apex.memory.broker.access import OPEN, PASSWORD, USERNAME, Access
from rainbow_iqn_apex.memory.broker.server_errors import (
    APPEND_ERROR,
    explain,
    explain_denial,
    explain_refusal,
    explain_type,
    is_wrong_type,
    trouble_of,
    type_probes,
    unpatched,
)

BrokerError: Final = redis.RedisError
Argument = str | bytes | int  # of a command
ResponseError: Final = redis.ResponseError  # the server answers, and refuses
NoScriptError: Final = redis.exceptions.NoScriptError
# Errors of a connection, which is closed then: of a server that is away, or of bytes that were changed on the way.
CONNECTION_ERRORS: Final = (redis.ConnectionError, redis.TimeoutError, redis.InvalidResponse)
_Kind = TypeVar("_Kind", bound=redis.Redis)
_Answer = TypeVar("_Answer")

BLOCK_MS = 1000  # longest blocking read: a stop request is seen within it
_SOCKET_TIMEOUT_S = 20.0  # must exceed BLOCK_MS and a transfer of the weights
AWAY_S = 60.0  # longest absence of the server that a process survives, unless told otherwise
_AGAIN_S = 2.0  # for a command that follows one that was given up
_PROBE_S = 10.0  # for the first answer of a server
ASIDE_S = 2.0  # for a command of a connection that gives up at once
_REPAIR_S = 10.0  # between two requests to write a file again
_DOUBTED = 2  # times that the same question is asked again, as bits of question or answer may have been flipped
_SILENT_S = 3.0  # of a connection to a process that shall stop, until another connection is tried
_MOST_REFUSAL = 200  # bytes of an error that is quoted
_TICK_S = 0.5  # from a request to stop until a command under way heeds it
_STOP_S = 8.0  # for a command under way when the process is asked to stop, or that it needs in order to stop


class ReplyTooLargeError(Exception):
    """A reply is larger than its reader accepts: the rest was not read, and the connection is closed."""


class Client(redis.Redis):
    """A connection that tries commands again while the server is away, or in trouble.

    After `away_s` of `connect`, a command raises RunError, and at once UserError if the Redis user may not give it.
    """

    away: "Away"
    stop: threading.Event  # set when this process shall stop
    where: str  # how messages name the server
    mode: str  # of the server: standalone, cluster or sentinel
    aside: Callable[[], "Aside"]  # opens a connection that gives up at once, for what may be lost

    def of(self, _key: str | bytes) -> "Client":
        """Return the connection to the server of a key: one server holds them all."""
        return self

    def servers(self) -> Sequence["Client"]:
        """Return a connection to each server."""
        return [self]

    def durable(self) -> "Client":
        """Return a connection whose commands are answered when a replica has them, too, if the server has one."""
        return self

    def replica(self) -> "Client":
        """Return a connection that reads from a replica, which may lag behind, if the server has one."""
        return self

    def leave_connections(self) -> None:
        """End the connections that no thread uses; the next command opens another one."""
        self.connection_pool.disconnect(inuse_connections=False)

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send a command."""
        self.away.begin()
        with waiting.waiting("the Redis server"):
            answer = self._execute_in_time(args, options)
        self.away.given_up = False
        return answer

    def once(self, *args: Argument) -> Any:
        """Send a command; raises BrokerError if the server refuses the command, for whatever reason."""
        self.away.begin()
        with waiting.waiting("the Redis server"):
            return self._send_until_connected(args, {})

    def _send(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Send a command, and return the reply."""
        return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]

    def _send_until_connected(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Send a command until a connection lasts for it.

        Where one connection has broken, or does not answer any more, the idle ones lead nowhere either: the server may
        have been started again, or its address may belong to another machine now.
        """
        failures = 0
        while True:
            try:
                return self._send(args, options)
            except CONNECTION_ERRORS as error:
                self.leave_connections()
                time.sleep(self.away.delay(failures := failures + 1, error))

    def replies_up_to(self, most: int) -> AbstractContextManager[None]:
        """Take no reply of more than `most` bytes in this thread; a larger one raises ReplyTooLargeError."""
        return self.away.limit(most)

    def _execute_in_time(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Send a command until the server accepts it, or its time is over.

        A server in trouble refuses a script as a whole, so a script can be tried again.
        """
        refused = 0
        while True:
            try:
                return self._send_until_connected(args, options)
            except redis.ResponseError as error:
                how = trouble_of(error)  # which is waited for, and so needs no doubt
                if not how and refused < _DOUBTED and not isinstance(error, NoScriptError):
                    refused += 1
                    self.leave_connections()
                    continue
                if denied := explain_denial(str(error)):
                    raise UserError(denied) from error
                if is_wrong_type(error):
                    probes = type_probes(args)
                    wrong = [key for key, probe in probes.items() if self._is_refused(probe)]
                    raise RunError(explain_type(wrong or probes)) from error
                if not how:
                    raise
                waiting.instead(f"the Redis server, which {how}")
                waiting.be_late()
                if APPEND_ERROR in str(error):
                    self._repair_files()
                time.sleep(0.5)
                self.away.check(f"{how}, and start again what has stopped")

    def _repair_files(self) -> None:
        """Ask servers that could not append to their files to write these again, where `Away` allows it.

        After one failed fsync a server refuses all writes until then, even if its disk is well again.
        """
        if (now := time.monotonic()) < self.away.next_repair:
            return
        self.away.next_repair = now + _REPAIR_S
        for server in self.servers():
            try:
                state = server._send(("INFO", "persistence"), {})
                if state["aof_last_write_status"] == "ok" or state["aof_rewrite_in_progress"]:
                    continue
                server._send(("BGREWRITEAOF",), {})
                failed = "" if state["aof_last_bgrewrite_status"] == "ok" else ", after a try that has failed"
                print(f"The Redis server could not append to its file and writes it again{failed}", flush=True)
            except redis.RedisError as error:
                print(f"The Redis server cannot write its file again: {error}", flush=True)

    def _is_refused(self, probe: tuple[str, ...]) -> bool:
        try:
            self._send(probe, {})
        except redis.ResponseError as error:
            return is_wrong_type(error)
        return False


def believed(client: Client, ask: Callable[[], _Answer], *doubtful: type[Exception]) -> _Answer:
    """Return what `ask` returns; if it raises one of `doubtful`, ask again on another connection before believing it.

    Of the bits that a faulty host flips, TCP's checksum lets some pass. `doubtful` are errors about what Redis holds,
    not those of a server that stays away, which has been asked for long enough.
    """
    for _ in range(_DOUBTED):
        try:
            return ask()
        except doubtful:
            client.leave_connections()
    return ask()


class Aside(redis.Redis):
    """A connection that gives a command up at once."""

    away: "Away"

    def of(self, _key: str | bytes) -> "Aside":
        """Return the connection to the server of a key; see `Client.of`."""
        return self

    def servers(self) -> Sequence["Aside"]:
        """Return a connection to each server."""
        return [self]

    def server_of(self, _key: str) -> Hashable:
        """Return what tells the server of a key from others."""
        return None

    def batch(self, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
        """Send commands together; return their replies, and errors in the place of replies."""
        return send_together(self, [(command, {}) for command in commands])

    def replies_up_to(self, most: int) -> AbstractContextManager[None]:
        """Take no reply, or message of a channel, of more than `most` bytes; see `Client.replies_up_to`."""
        self.away.begin()
        return self.away.limit(most)


def send_together(client: redis.Redis, commands: Sequence[tuple[tuple[Any, ...], dict[str, Any]]]) -> list[Any]:
    """Send commands with their options on one connection; return their replies, and errors in the place of replies."""
    pipe: Any = client.pipeline(transaction=False)  # redis-py declares no types
    for command, options in commands:
        pipe.execute_command(*command, **options)
    return list(pipe.execute(raise_on_error=False))


class Away:
    """Time that a command has while its server is away: its tries end then, or soon after a request to stop."""

    def __init__(self, stop: threading.Event, seconds: float | None = None) -> None:
        self._stop = stop
        self._stopping = math.inf  # when a command first noticed that the process shall stop
        self._seconds = seconds
        self._began = threading.local()
        self.next_repair = math.inf  # when servers may be asked to write their files again: a learner asks them
        self.given_up = False  # whether a command was given up, and none has been answered since

    @property
    def seconds(self) -> float:
        """How long a command is tried."""
        return self._seconds or AWAY_S

    @property
    def over(self) -> bool:
        """Whether this thread's command has been tried for long enough."""
        now = time.monotonic()
        began = getattr(self._began, "at", math.inf)
        if self._stop.is_set():
            self._stopping = min(self._stopping, now)
        return now > min(began + getattr(self._began, "seconds", 0.0), max(began, self._stopping) + _STOP_S)

    def is_silent(self, seconds: float) -> bool:
        """Return whether a connection that has been silent for so long is to be given up for another one.

        A process that shall stop may meet one that has led nowhere for long. Its command's time is for two tries.
        """
        first = not getattr(self._began, "failed", False)
        return first and seconds >= _SILENT_S and self._stop.is_set()

    def begin(self) -> None:
        """Note that a command begins in this thread; after one that was given up, a command is tried only briefly."""
        self._began.at = time.monotonic()
        self._began.why = None
        self._began.received = 0
        self._began.failed = False
        self._began.seconds = min(self.seconds, _AGAIN_S) if self.given_up else self.seconds

    @contextmanager
    def limit(self, most: int) -> Iterator[None]:
        """Limit the replies to this thread's commands to `most` bytes each."""
        self._began.most = most
        try:
            yield
        finally:  # an `Aside` notes no other beginning: its later commands have all the time of their sockets
            self._began.most = self._began.at = math.inf

    def receive(self, count: int) -> None:
        """Count bytes of a reply; raises ReplyTooLargeError if they are too many."""
        self._began.received = getattr(self._began, "received", 0) + count
        if self._began.received > getattr(self._began, "most", math.inf):
            raise ReplyTooLargeError

    def check(self, how: str) -> None:
        """Raise RunError if this thread's command has been tried for long enough.

        While the process shall stop, that is two tries: the first may have found a connection that had broken long
        before. Tries to connect are nested in tries to send, and share their time.
        """
        again = getattr(self._began, "failed", False)
        self._began.failed = True
        over = self.over
        stops = self._stop.is_set()
        if not (over or (stops and again)):
            return
        self.given_up = True
        if stops:
            raise RunError(f"the Redis server {how}, and this process shall stop")
        raise RunError(f"the Redis server, tried for {self.seconds:.0f} sec, {how}")

    def delay(self, failures: int, error: Exception) -> float:
        """Return the seconds to wait after so many failures, the last one by this error; raises as `check`."""
        waiting.be_late()
        if not (self.over and self._began.why):  # a later failure has the lack of time as its cause
            self._began.why = error
        if how := trouble_of(self._began.why):
            waiting.instead(f"the Redis server, which {how}")
        self.check(f"{how}, and start again what has stopped" if how else f"stays away: {self._began.why}")
        return min(2.0, random.random() * 0.02 * 2.0 ** min(failures, 10))

    def greet(self, connection: Any) -> None:
        """Set up a connection that has just been made, and read a reply.

        A server with too many connections sends an error and closes the new one: redis-py would find the error where it
        expects nothing, and not name it. The same holds of the session tickets with which TLS begins.
        """
        connection._sock = TimedSocket(connection._sock, self)
        connection.on_connect()
        connection.send_command("SELECT", connection.db, check_health=False)  # in trouble a server refuses PING
        with suppress(redis.ResponseError):  # of a Sentinel, which has no databases
            connection.read_response()

    def greet_replica(self, connection: Any) -> None:
        """Set up a connection to a replica of a cluster, which sends who reads to its master unless told not to."""
        self.greet(connection)
        connection.send_command("READONLY", check_health=False)
        connection.read_response()


class TimedSocket:
    """A socket that gives up a command in time.

    The timeout of a plain socket begins anew with every byte, and does not heed a request to stop.
    """

    def __init__(self, plain: Any, away: Away) -> None:
        self._plain = plain
        self._away = away

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)

    def recv_into(self, buffer: Any) -> int:
        """Read some bytes; raises TimeoutError when none come in time, or ReplyTooLargeError."""
        count = self._in_time(self._plain.recv_into, buffer)
        self._away.receive(count)
        return count

    def sendall(self, data: bytes) -> None:
        """Send all bytes; raises as `recv_into`, or OSError with the reason of a server that closes the connection."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._in_time(self._plain.send, rest) :]
        except (ConnectionResetError, BrokenPipeError) as error:
            raise OSError(error.errno, f"{error.strerror} {self._refusal()}".strip()) from error

    def _refusal(self) -> str:
        """Return the error that the server has sent before it closed the connection; empty for none."""
        with suppress(OSError):
            self._plain.settimeout(0)
            answer: bytes = self._plain.recv(_MOST_REFUSAL)
            return answer.partition(b"\r")[0].decode("ascii", "replace") if answer.startswith(b"-") else ""
        return ""

    def _in_time(self, transfer: Callable[[Any], int], data: Any) -> int:
        """Transfer some bytes within the socket's own timeout, in short tries; stop when the command's time is over."""
        timeout = self._plain.gettimeout()
        most = math.inf if timeout is None else timeout
        waited = 0.0
        try:
            while not self._away.over and waited < most and not self._away.is_silent(waited):
                self._plain.settimeout(min(most - waited, _TICK_S))
                waited += _TICK_S
                with suppress(TimeoutError):
                    return transfer(data)
                waiting.be_late()
            raise TimeoutError
        finally:
            self._plain.settimeout(timeout)


@cache
def _print_hole(where: str, line: str | None) -> None:
    """Print a line about a server once in a process, not into what a program prints for other programs."""
    if line:
        print(f"{where}: {line}", file=sys.stderr, flush=True)


def connect(
    host: str, port: int, stop: threading.Event | None = None, access: Access = OPEN, away_s: float | None = None
) -> Client:
    """Connect, and check that a Redis server answers and lets us in; raises UserError if not.

    Later, commands are tried again for `away_s` while the server is away. When `stop` is set, a command under way has a
    few seconds left. Raises Stopped if `stop` is set and no server has answered.
    """
    where = access.told_by or f"--host-redis {host} --port-redis {port}"
    stop = stop or threading.Event()
    first = Away(stop, _PROBE_S)
    first.begin()
    probe = _open(redis.Redis, host, port, access, first.greet, Retry(NoBackoff(), 1), timeout=2.0)
    try:
        server = probe.info("server")
        version = server["redis_version"]
    except redis.AuthenticationError as error:
        advice = f"{USERNAME} and {PASSWORD} must be those of a user of this server"
        raise UserError(f"{where}: the server does not let us in ({error}); {advice}") from error
    except (redis.ConnectionError, redis.TimeoutError) as error:
        if stop.is_set():
            raise Stopped from error
        raise UserError(f"{where}: {explain(error, access, port)}") from error
    except redis.ResponseError as error:
        refusal = trouble_of(error) or explain_refusal(str(error))
        raise UserError(explain_denial(str(error)) or f"{where}: the server {refusal}") from error
    except (redis.RedisError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{where}: what answers is no Redis server, or needs TLS (rediss://): {error}") from error
    finally:
        probe.close()
    numbers = re.match(r"(\d+)\.(\d+)", str(version))
    if not numbers or tuple(map(int, numbers.groups())) < (6, 2):
        raise UserError(f"{where}: Redis {version} answers, 6.2 or later is needed")
    _print_hole(where, unpatched(server, tls=access.tls is not None))
    away = Away(stop, away_s)
    connected = open_once(Client, host, port, access, away)
    connected.away = away
    connected.stop = stop
    connected.where = where
    connected.mode = str(server.get("redis_mode", server.get("server_mode")))
    connected.aside = lambda: open_aside(host, port, access)
    return connected


def open_aside(host: str, port: int, access: Access) -> Aside:
    """Open a connection that gives up at once."""
    away = Away(threading.Event())
    opened = open_once(Aside, host, port, access, away, ASIDE_S)
    opened.away = away
    return opened


def open_once(
    kind: type[_Kind], host: str, port: int, access: Access, away: Away, timeout: float = 0.0, *, reads: bool = False
) -> _Kind:
    """Open a connection that tries each command once; with `reads`, one to a replica of a cluster."""
    greet = away.greet_replica if reads else away.greet
    return _open(kind, host, port, access, greet, Retry(NoBackoff(), 0), timeout or _SOCKET_TIMEOUT_S)


def _open(kind: type[_Kind], host: str, port: int, access: Access, greet: Any, retry: Retry, timeout: float) -> _Kind:
    return kind(
        host,
        port,
        protocol=2,
        retry=retry,
        retry_on_error=[*CONNECTION_ERRORS, redis.BusyLoadingError],
        socket_timeout=timeout,
        socket_connect_timeout=min(5.0, timeout),
        driver_info=None,  # redis-py's name is of no use, and our Redis users have no right to send it
        redis_connect_func=greet,
        **access.options(),
    )

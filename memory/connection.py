"""The connection to the Redis server: made, tried again, and given up in time. Alone in importing redis."""

import re
import sys
import threading
import time
from typing import Any, Final

import redis
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.exceptions import OutOfMemoryError
from redis.retry import Retry

from memory.access import OPEN, PASSWORD, USERNAME, Access, explain, explain_denial
from memory.errors import RunError, UserError
from memory.waiting import Patience, waiting

BrokerError: Final = redis.RedisError
ResponseError: Final = redis.ResponseError  # the server answers, and refuses

BLOCK_MS = 1000  # longest blocking read: a stop request is seen within it
_SOCKET_TIMEOUT_S = 20.0  # must exceed BLOCK_MS and a transfer of the weights
AWAY_S = 60.0  # an absence that a process survives


class Client(redis.Redis):
    """A connection whose server may stay away, or have no room, for a minute; then every command raises RunError.

    A command that the Redis user may not give raises UserError.
    """

    away: "_Away"

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send a command."""
        self.away.begin()
        with waiting("the Redis server"):
            return self._execute_in_time(args, options)

    def _execute_in_time(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """A full server refuses a script as a whole; its owner may raise maxmemory meanwhile."""
        patience = Patience("room in the Redis server: it has used all of its maxmemory")
        closed = 0
        while True:
            try:
                return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]
            except (redis.ConnectionError, redis.TimeoutError):
                # redis-py tries again by itself, but for connections that close just after they have opened.
                time.sleep(self.away.compute(closed := closed + 1))
            except redis.ResponseError as error:
                if denied := explain_denial(str(error)):
                    raise UserError(denied) from error
                if not isinstance(error, OutOfMemoryError) and "OOM command" not in str(error):  # a script's
                    raise
                self.away.check("has no room: raise its maxmemory, and start again what has stopped")
                patience.check()
                time.sleep(0.5)


class _Away(ExponentialWithJitterBackoff):
    """Waits between tries of a command, which end after a minute, or when the process is asked to stop."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__(cap=2.0, base=0.02)
        self._stop = stop
        self._began = threading.local()

    def __deepcopy__(self, _: object) -> "_Away":
        return self  # every connection gets a copy, and all heed the same stop

    def begin(self) -> None:
        """A command begins in this thread."""
        self._began.at = time.monotonic()

    def check(self, how: str) -> None:
        """Raise RunError if it has been tried for long enough; tries to connect are nested in those to send."""
        if self._stop.is_set():
            raise RunError(f"the Redis server {how}, and this process shall stop")
        if time.monotonic() - self._began.at > AWAY_S:
            raise RunError(f"the Redis server, tried for {AWAY_S:.0f} sec, {how}")

    def compute(self, failures: int) -> float:
        """Seconds to wait after so many failures."""
        self.check(f"stays away: {sys.exception()}")
        return super().compute(failures)


def _greet(connection: Any) -> None:
    """Set a TLS connection up, and read a reply with which session tickets are read, too.

    redis-py would take them, unread, for a reply that a former user of the connection has left.
    """
    connection.on_connect()
    connection.send_command("PING", check_health=False)
    connection.read_response()


def connect(host: str, port: int, stop: threading.Event | None = None, access: Access = OPEN) -> Client:
    """Connect, and see that a Redis server answers and lets us in; raises UserError if none does.

    While the server stays away, commands are tried again for about a minute, or until `stop` is set.
    """
    where = access.told_by or f"--host-redis {host} --port-redis {port}"
    greet: Any = _greet if access.tls else None  # redis-py declares another signature
    errors: list[type[Exception]] = [redis.ConnectionError, redis.TimeoutError, redis.BusyLoadingError]
    away = _Away(stop or threading.Event())

    def client(retry: Retry, timeout: float, kind: type[redis.Redis] = Client) -> Any:
        return kind(
            host,
            port,
            protocol=2,
            retry=retry,
            retry_on_error=errors,
            socket_timeout=timeout,
            socket_connect_timeout=min(5.0, timeout),
            driver_info=None,  # nobody needs to know it, and our Redis users have no right to tell it
            redis_connect_func=greet,
            **access.options(),
        )

    probe = client(Retry(NoBackoff(), 1), timeout=2.0, kind=redis.Redis)
    try:
        version = probe.info("server")["redis_version"]
    except redis.AuthenticationError as error:
        advice = f"{USERNAME} and {PASSWORD} must be those of a user of this server"
        raise UserError(f"{where}: the server does not let us in ({error}); {advice}") from error
    except (redis.ConnectionError, redis.TimeoutError) as error:
        raise UserError(f"{where}: {explain(error, access)}") from error
    except redis.ResponseError as error:
        raise UserError(explain_denial(str(error)) or f"{where}: the server refuses us: {error}") from error
    except (redis.RedisError, LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{where}: who answers is no Redis server, or wants TLS (rediss://): {error}") from error
    finally:
        probe.close()
    numbers = re.match(r"(\d+)\.(\d+)", str(version))
    if not numbers or tuple(map(int, numbers.groups())) < (6, 2):
        raise UserError(f"{where}: Redis {version} answers, 6.2 or later is needed")
    connected: Client = client(Retry(away, -1), _SOCKET_TIMEOUT_S)
    connected.away = away
    return connected

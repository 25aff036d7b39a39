"""Find the Redis server of a run: one that runs already, or one that is started here with redis_rainbow_6379.conf."""

import re
import signal
import socket
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, NamedTuple

from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.common.files import caller_path, lock_file
from rainbow_iqn_apex.memory.broker.access import LOCAL, OPEN, Server, append_file, keeps_file
from rainbow_iqn_apex.memory.broker.connection import BrokerError, connect
from rainbow_iqn_apex.memory.broker.leases import is_at_work
from rainbow_iqn_apex.memory.broker.topology import open_servers
from rainbow_iqn_apex.programs.process import StopRequest
from rainbow_iqn_apex.programs.redis_program import CONFIGURATION, find_program, process_file, settings_of
from rainbow_iqn_apex.programs.start.screen import complain, say
from rainbow_iqn_apex.programs.supervision import Clock, Command, RestartPolicy, stop_all

_ANSWERS_WITHIN_S = 30.0
_OTHERS_SAVE_S = 60.0
_LEAVES_S = 5.0  # a server that was taken back still holds its lock when it listens no more
_LAST_LINES = 8
_SCRIPT = "start-script"  # the name of a start script's connection to its server


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
    """Return whether a server that runs is to be used: one that is guarded or on another machine has its keeper."""
    is_several = bool(server.others or server.service)
    return asked or is_several or server.access != OPEN or server.host not in LOCAL


def check_running(server: Server) -> bool:
    """Return whether the server is of a cluster; raises UserError if it does not answer, or does not let us in."""
    with closing(open_servers(server)) as client:
        is_cluster = client.mode == "cluster"
    say(f"Redis: using the server that runs at {server.host}:{server.port}")
    return is_cluster


def check_port(host: str, port: int, answer: Answer, results: Path) -> None:
    """Raise UserError if a server cannot be started at a port, as something answers there."""
    if answer.is_redis and _keeps(host, port, results):
        raise UserError(
            f"--port-redis: the Redis server of {caller_path(results)} is already at {host}:{port}; stop what "
            f"looks after it, or itself (redis-cli -p {port} shutdown), or --use-running-redis goes on with it"
        )
    if answer.listens and keeps_file(results, port):
        raise UserError(
            f"--port-redis: port {port} of {host} is taken, and the run in {caller_path(results)} goes on with a Redis "
            "server there, which has its experience; stop what listens there"
        )
    if answer.is_redis:
        raise UserError(
            f"--port-redis: a Redis server is already at {host}:{port}; --use-running-redis uses it, --port-redis "
            "starts one at another port"
        )
    if answer.listens:
        raise UserError(f"--port-redis: port {port} of {host} is taken by something that is not Redis; choose another")


def take_back(host: str, port: int, results: Path, run: str, stop: StopRequest) -> None:
    """Stop the server of these results that a killed start script has left at a port, if there is one.

    It is started again as a child. Raises RunError if it does not stop. A living script keeps a connection to its
    server, and who starts a server by hand names no process file.
    """
    if not (ask(host, port).is_redis and _keeps(host, port, results, left=True)):
        return
    say(f"Redis: taking back the server that a killed start script has left at {host}:{port}")
    _wait_for_others(host, port, run, stop)
    with suppress(OSError), socket.create_connection((host, port), timeout=_ANSWERS_WITHIN_S) as connection:
        connection.sendall(b"SHUTDOWN\r\n")
        connection.recv(1000)
    deadline = time.monotonic() + _ANSWERS_WITHIN_S
    while ask(host, port).listens:
        if time.monotonic() > deadline:
            raise RunError(f"the Redis server that a killed start script has left at {host}:{port} does not stop")
        stop.pause()


def _wait_for_others(host: str, port: int, run: str, stop: StopRequest) -> None:
    """Wait until the processes of the killed start script, which save and end, have given their leases back."""
    deadline = time.monotonic() + _OTHERS_SAVE_S
    with suppress(UserError, RunError, BrokerError), closing(connect(host, port)) as client:
        if is_at_work(client, run):
            say(f"Redis: waiting up to {_OTHERS_SAVE_S:.0f} sec for the processes of that script to save")
        while is_at_work(client, run) and time.monotonic() < deadline:
            stop.pause()


def _keeps(host: str, port: int, results: Path, *, left: bool = False) -> bool:
    """Return whether a server keeps its file in these results; `left`: and was left by a killed start script."""
    with suppress(UserError, RunError, BrokerError), closing(connect(host, port)) as client:

        def setting(name: str) -> str:
            return str(client.config_get(name).get(name, ""))

        if (Path(setting("dir")), setting("appendfilename")) != (results.resolve(), append_file(port)):
            return False
        names = {connection["name"] for connection in client.client_list()}
        return not left or (setting("pidfile") == process_file(port, results) and _SCRIPT not in names)
    return False


def _lock(folder: Path, port: int, stop: StopRequest) -> IO[bytes]:
    """Return the lock of a server's file: two servers that append to it would mix their runs."""
    deadline = time.monotonic() + _LEAVES_S
    while True:
        try:
            return lock_file(folder / f".redis_{port}.lock")
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise UserError(
                    f"--path-to-results: another start script, perhaps of another machine, keeps a Redis server's file "
                    f"in {caller_path(folder)}; stop that script and its server, or name another folder"
                ) from error
        except OSError as error:
            raise UserError(
                f"--path-to-results: {caller_path(folder)} lets no file be locked: {error.strerror}"
            ) from error
        stop.pause()


class RedisServer:
    """A server of our own, which is started again when it has died.

    Raises UserError if another start script has one in the same folder, which other machines may share.
    """

    def __init__(self, host: str, port: int, folder: Path, stop: StopRequest, clock: Clock = time.monotonic) -> None:
        self._host = host
        self._port = port
        self._stop = stop
        self._program = find_program()
        self._lock = _lock(folder, port, stop)
        self._log = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - open as long as the server writes
        self._held: socket.socket | None = None  # by which other start scripts see that this one lives
        self.process = Command(
            "the Redis server",
            [self._program.path, "-", *settings_of(port, folder), "--pidfile", process_file(port, folder)],
            self._log,
            pass_fds=[self._lock.fileno()],  # a server that outlives this script keeps the lock
            policy=RestartPolicy(final_codes=()),
            clock=clock,
            # Slurm and systemd send SIGTERM to all processes at once, and the server has to outlive those that save.
            blocks=[signal.SIGTERM],
        )
        self.process.has_worked = True  # what it lacks later, such as memory, is away for a while

    def start(self) -> None:
        """Start it, and wait until it answers; raises RunError if it cannot."""
        with tempfile.TemporaryDirectory() as place, CONFIGURATION.open("rb") as configuration:
            (Path(place) / "results").mkdir()  # the configuration file names it, and Redis goes there first
            self.process.start(configuration, place)
            self._wait()
        self._hold()
        say(f"Redis: started {self._program} at {self._host}:{self._port}")

    def _hold(self) -> None:
        self._let_go()
        with suppress(OSError):  # it has died again, and is started again
            self._held = socket.create_connection((self._host, self._port), timeout=_ANSWERS_WITHIN_S)
            self._held.sendall(f"CLIENT SETNAME {_SCRIPT}\r\n".encode())

    def _let_go(self) -> None:
        if self._held:
            self._held.close()

    def _wait(self) -> None:
        """Wait until this very process answers: another server may have taken the port in the meantime."""
        deadline = time.monotonic() + _ANSWERS_WITHIN_S
        printed = False
        while (answer := ask(self._host, self._port)).process_id != self.process.process_id:
            if not self.process.runs():
                raise self._failed("could not start")
            if answer.is_loading:
                deadline = time.monotonic() + _ANSWERS_WITHIN_S
                if not printed:
                    say("Redis: reading what was saved")
                printed = True
            if time.monotonic() > deadline:
                raise self._failed("does not answer")
            self._stop.pause()

    def keep_alive(self) -> None:
        """Start it again if it has died: its file holds all but the last second, which the others send again."""
        if self.process.runs():
            return
        if not self.process.may_restart():
            raise self._failed("has died")
        if not self.process.is_due():
            return
        say("the Redis server has died and is started again")
        try:
            self.start()
        except (RunError, OSError) as error:
            complain(str(error))
            self.process.kill()

    def _failed(self, what: str) -> RunError:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()[-_LAST_LINES:]
        return RunError("\n".join([f"the Redis server {what}; its last lines:", *lines]))

    def stop(self, patience_s: float) -> None:
        """Stop it, after all who save into it."""
        self._let_go()
        if self.process.runs():
            say("stopping the Redis server")
            for process in stop_all([self.process], patience_s, signal.SIGINT):
                process.kill()
        self._log.close()
        self._lock.close()

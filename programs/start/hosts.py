"""Actors on other hosts: the file of --hosts, the connections by ssh, and the helper that stands for each actor here.

# the file: name of the host, how many actors; where its checkout is, and its CUDA devices, if they are not as here
node1     4
me@node2  8  folder=/data/rainbow  gpus=0,1

ssh takes the user's own keys and configuration. The tunnel through which an actor reaches Redis goes by the same
connection, so that Redis need not listen on a network and asks for no further secret; it ends with the connection.
Nothing that is put into the remote command differs from case to case: folder, options and secrets go by the standard
input, past the shells of both sides.

python -m rainbow_iqn_apex.programs.start.hosts HOST FOLDER REDIS DB [OPTION ...], with REDIS as host:port and the
options of launch_actor.py, stands for an actor: it starts the actor there, hands on its lines, and stops it as an actor
here is stopped. When the connection breaks, another is made for as long as it takes. The actor ends with this process,
and this process with the start script.
"""

import argparse
import json
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

from rainbow_iqn_apex.common import schema
from rainbow_iqn_apex.common.checkout import Code, present
from rainbow_iqn_apex.common.errors import Stopped, UserError
from rainbow_iqn_apex.common.text import one_line
from rainbow_iqn_apex.memory.broker.access import PASSWORD, USERNAME
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS
from rainbow_iqn_apex.options.command_line import devices
from rainbow_iqn_apex.programs.process import HAS_WORKED, StopRequest, has_worked, reader
from rainbow_iqn_apex.programs.start.remote_side import BEAT, BEAT_S, FAULT, HELLO, LOST, STOP, Order
from rainbow_iqn_apex.programs.supervision import Process, RestartPolicy

OPTION = "--hosts"
ONE_SERVER = (  # a tunnel leads to one port
    "--hosts: actors reach one Redis server through ssh, no cluster and no Sentinels: name one server, without "
    "--redis-shards, or start the actors by hand"
)
_MOST_BYTES = 100_000
_MOST_HOSTS = 1000
# No name begins with a dash, which ssh would take for an option.
_NAME = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.@:%-]{0,252}")
_COMMENT = re.compile(r"""^((?:'[^']*'|"(?:[^"\\]|\\.)*"|\\.|(?<=\S)#|[^#'"\\])*+)#.*""")  # outside of quotes and words
_EXPECTED = "expected HOST ACTORS [folder=PATH] [gpus=LIST]"
_GREETS_S = 60.0  # with the connection, the login, and the imports there
_CHECKS_AT_ONCE = 8  # an sshd drops many connections that come at once, and many hosts may lie behind one
_TRIES = 5
_PAUSE_S = 2.0
_DROPPED = re.compile("kex_exchange|reset by|closed by|banner exchange")  # as sshd's MaxStartups has it
_SSH = (  # no question, whatever the user's configuration asks for; a dead network is noticed within 15 s
    "ssh -T -a -x -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3 "
    "-o ControlMaster=no -o ControlPath=none -o RemoteCommand=none -o ExitOnForwardFailure=no -o LogLevel=INFO"
).split()
# One that every shell takes as it is: a login shell may be another than sh.
_THERE = (
    "exec sh -c 'IFS= read -r folder; "
    'cd -- "$folder" 2>/dev/null && [ -d rainbow_iqn_apex ] || { echo "@checkout"; exit 2; }; '
    'python=${RAINBOW_VENV:-.venv}/bin/python; [ -x "$python" ] || { echo "@environment"; exit 2; }; '
    'exec "$python" -m rainbow_iqn_apex.programs.start.remote_side\''
).replace("@", FAULT.decode())
_FAULTS = {
    "checkout": "has no checkout of this repository in {}: install one there, or name its folder: folder=PATH",
    "environment": "has no environment in {}: run `bash make_environment.sh` there",
}
_MOST_LINE = 65_536  # bytes; a longer one comes in pieces
_SILENT = ("Allocated port", "Warning: Permanently added")
_LOOK_S = 0.2
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 10.0
_TOLD_EVERY_S = 10.0
_STOPS_S = 60.0  # for an actor whose start script was killed; the start script itself has RAINBOW_STOP_SECONDS


class Host(NamedTuple):
    """A machine that ssh reaches by its name."""

    name: str
    actors: int
    folder: str  # of the checkout; one that does not begin with / is below the user's home there
    gpus: tuple[int, ...]


def read(path: Path, folder: str) -> tuple[Host, ...]:
    """Return the hosts of a file, with `folder` where a line names none; raises UserError with every bad line."""
    hosts: list[Host] = []
    errors = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        try:
            host = _host(line, folder)
            if host and host.name in {other.name for other in hosts}:
                raise ValueError(f"{host.name} stands in a line before; add its actors there")
            hosts += [host] if host else []
        except ValueError as error:
            errors.append(f"{path}: line {number}: {error}")
    if not errors and not 1 <= len(hosts) <= _MOST_HOSTS:
        errors.append(f"{path}: expected 1 to {_MOST_HOSTS} hosts, one a line, got {len(hosts)}")
    if not errors and sum(host.actors for host in hosts) > MAX_ACTORS:
        errors.append(f"{path}: expected at most {MAX_ACTORS} actors, these are {sum(host.actors for host in hosts)}")
    if errors:
        raise UserError("\n".join(errors[:_MOST_HOSTS]))
    return tuple(hosts)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:  # cut within a letter, perhaps
            raise UserError(f"{OPTION}: {path}: expected a text of at most {_MOST_BYTES} bytes")
        text = data.decode()
    except OSError as error:
        raise UserError(f"{OPTION}: {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{OPTION}: {path}: expected a text in UTF-8") from error
    if "\0" in text:
        raise UserError(f"{OPTION}: {path}: expected a text without NUL")
    return text


def _host(line: str, folder: str) -> Host | None:
    """Return the host of a line, None for a comment; raises ValueError for any other."""
    words = shlex.split(_COMMENT.sub(r"\1", line))
    if not words:
        return None
    name, actors, *more = [*words, ""] if len(words) == 1 else words
    if not _NAME.fullmatch(name):
        raise ValueError(f"{_EXPECTED}; {name!r} is no name of a host")
    if not re.fullmatch("[0-9]{1,9}", actors) or not 1 <= int(actors) <= MAX_ACTORS:
        raise ValueError(f"{_EXPECTED}; how many actors is 1 to {MAX_ACTORS}, got {actors!r}")
    given: dict[str, str] = {}
    for word in more:
        key, equals, value = word.partition("=")
        if key not in ("folder", "gpus") or not equals or not value or key in given:
            raise ValueError(f"{_EXPECTED}, got {word!r}")
        given[key] = value
    place = re.sub("^~(/|$)", "", given.get("folder", folder)) or "."
    if not place.isprintable():
        raise ValueError(f"folder: expected a printable path, got {place!r}")
    try:
        gpus = devices(given["gpus"]) if "gpus" in given else ()
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"gpus: {error}") from error
    return Host(name, int(actors), place, gpus)


class LostError(Exception):
    """There is no connection, which another try may give."""


class SshProcess(Process):
    """An actor on a host, or at first only what starts it there; all of it ends with its connection.

    A context manager, which raises LostError if ssh does not start.
    """

    def __init__(self, host: Host, redis: str, show: Callable[[bytes], None] = lambda _line: None) -> None:
        """`redis` is host:port of the server, as it is reached from here; `show` gets the lines of the actor."""
        super().__init__(f"ssh {host.name}", RestartPolicy(), time.monotonic, ())
        self._host = host
        self._redis = redis
        self._show = show
        self._port = 0  # of the tunnel's other end
        self._refused = False  # the tunnel
        self._hello = b""
        self._last = ""

    def _launch(self) -> None:
        command = [*_SSH, "-R", f"127.0.0.1:0:{self._redis}", "--", self._host.name, _THERE]
        pipe = subprocess.PIPE
        self._popen = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        self._threads = [
            threading.Thread(target=target, args=(stream,), name=self.name, daemon=True)
            for target, stream in ((self._read_errors, self._popen.stderr), (self._read_lines, self._popen.stdout))
        ]
        for thread in self._threads:
            thread.start()
        self._send(f"{self._host.folder}\n".encode())

    def _poll(self) -> int | None:
        code = self._popen.poll()
        return LOST if code is not None and code < 0 else code

    def _signal(self, number: signal.Signals) -> None:
        """Kill the connection, or ask the actor to save and stop."""
        if number == signal.SIGKILL:
            self._popen.kill()
        else:
            self._send(STOP)

    def _clean_up(self) -> None:
        for thread in self._threads:
            thread.join(5)
        assert self._popen.stdin is not None
        with suppress(OSError):  # what is left to be sent
            self._popen.stdin.close()

    def __enter__(self) -> "SshProcess":
        try:
            self.start()
        except OSError as error:
            raise LostError(f"ssh does not start here: {error.strerror}") from error
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _read_errors(self, stream: IO[bytes]) -> None:
        for data in _lines(stream):
            line = data.decode(errors="replace")
            if port := re.match(r"Allocated port ([0-9]{1,5}) for remote forward", line):
                self._port = int(port[1])
            self._refused |= "remote port forwarding failed for listen port 0" in line  # others are the user's own
            if line.strip() and not line.startswith(_SILENT):
                self._last = one_line(line)

    def _read_lines(self, stream: IO[bytes]) -> None:
        for line in _lines(stream):
            if self._hello:
                self._show(line)
            elif line.startswith((HELLO, FAULT)):
                self._hello = line

    def greet(self, leaving: threading.Event | None = None) -> None:
        """Wait until the other side is there; raises UserError for a host that cannot help, LostError for none.

        Raises LostError, too, once `leaving` is set.
        """
        deadline = time.monotonic() + _GREETS_S
        while not (self._hello and (self._port or self._refused or self._hello.startswith(FAULT))):
            if leaving and leaving.is_set():
                raise LostError("not asked to the end")
            if not self.runs() and not self._hello.startswith(FAULT):
                self.raise_if_lost()
                reason = self._last or self.exit_code
                raise UserError(f"{self._host.name}: {self._host.folder} there cannot run an actor: {reason}")
            if time.monotonic() > deadline:
                raise LostError(f"no answer within {_GREETS_S:.0f} s")
            time.sleep(0.05)
        if self._hello.startswith(FAULT):
            fault = _FAULTS.get(self._hello.removeprefix(FAULT).decode(errors="replace").strip(), "cannot help")
            raise UserError(f"{self._host.name}: {fault.format(self._host.folder)}")
        self._compare()
        if self._refused:
            raise UserError(f"{self._host.name}: its sshd lets no tunnel through: set AllowTcpForwarding there")

    def _compare(self) -> None:
        here = present()
        try:
            there = schema.read_record(self._hello.removeprefix(HELLO), Code, 1000)
        except ValueError as error:
            raise UserError(f"{self._host.name}: {self._host.folder} is of another release; update it") from error
        if there.differs_from(here):
            raise UserError(
                f"{self._host.name}: {self._host.folder} has {there}, and this machine {here}; bring both to the same"
            )

    def order(self, words: Sequence[str], db: int, told: dict[str, str]) -> None:
        """Order an actor there, with these options, and variables besides."""
        environment = told | {"REDIS_URL": f"redis://127.0.0.1:{self._port}/{db}"}
        self._send(json.dumps(asdict(Order(list(words), environment))).encode() + b"\n")

    def beat(self) -> None:
        """Tell the other side that this one is there."""
        self._send(BEAT)

    def _send(self, data: bytes) -> None:
        assert self._popen.stdin is not None
        with suppress(OSError):  # it has ended, as its exit code shows
            self._popen.stdin.write(data)
            self._popen.stdin.flush()

    def raise_if_lost(self) -> None:
        """Raise LostError if it has ended with the connection."""
        if self.exit_code == LOST:
            raise LostError(self._last or "the connection was closed")


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield all lines, and close the stream: another thread could not while a helper of ssh's own holds it open."""
    with stream:
        yield from iter(partial(stream.readline, _MOST_LINE), b"")


def check(hosts: Sequence[Host], redis: str, stop: StopRequest) -> None:
    """Raise UserError with a line for each host that cannot run actors, Stopped if the user asks to stop meanwhile."""
    leaving = threading.Event()
    with ThreadPoolExecutor(_CHECKS_AT_ONCE) as pool:
        checks = [pool.submit(_fault, host, redis, leaving) for host in hosts]
        is_over = False
        try:
            while not is_over:
                is_over = all(check.done() for check in checks)
                stop.pause()  # also at the end: a Ctrl-C ends each ssh, too
        except Stopped:
            leaving.set()
            pool.shutdown(cancel_futures=True)
            raise
    if faults := list(filter(None, (check.result() for check in checks))):
        raise UserError("\n".join(f"{OPTION}: {fault}" for fault in faults))


def _fault(host: Host, redis: str, leaving: threading.Event) -> str:
    fault = ""
    for attempt in range(_TRIES):
        if leaving.wait(random.uniform(0, _PAUSE_S * attempt)):
            break
        try:
            with SshProcess(host, redis) as connection:
                connection.greet(leaving)
        except UserError as error:
            return str(error)
        except LostError as error:
            fault = f"{host.name}: {error}; `ssh {host.name}` must get in without a question"
            if not _DROPPED.search(str(error)):
                break
        else:
            return ""
    return fault


class RemoteActor:
    """An actor on a host, over as many connections as it takes."""

    def __init__(self, host: Host, redis: str, db: int, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self._host = host
        self._redis = redis
        self._db = db
        self._words = words
        self._told = {name: environment[name] for name in (USERNAME, PASSWORD, HAS_WORKED) if environment.get(name)}
        self._stop = False
        self._is_there = False  # the other side, over the newest connection
        self._was_there = has_worked()  # over any of them, or of those of an earlier process
        self._reader = reader()

    def run(self) -> int:
        """Return the actor's exit code; 1 if it was to stop without a connection.

        Raises UserError for a host that cannot run it. One that could is waited for: its folder may be mounted late.
        """
        pause = _FIRST_PAUSE_S
        lost_at = 0.0
        told_at = 0.0
        while not self._ends():
            self._is_there = False
            try:
                return self._run_once()
            except (LostError, UserError) as error:
                if isinstance(error, UserError) and not self._was_there:
                    raise
                now = time.monotonic()
                if self._is_there or not lost_at:
                    pause = _FIRST_PAUSE_S
                    lost_at = now
                    told_at = now - _TOLD_EVERY_S
                if now - told_at >= _TOLD_EVERY_S:
                    told_at = now
                    lost = f"({now - lost_at:.0f} sec): {error}"
                    _hand_on(f"Waiting for the ssh connection to {self._host.name} {lost}\n".encode())
            until = time.monotonic() + pause * random.uniform(0.5, 1.0)  # an sshd drops many that come at once
            while time.monotonic() < until and not self._ends():
                time.sleep(_LOOK_S)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        return 1

    def stop(self, *_: object) -> None:
        """Ask it to save and stop, as a handler of signals, which may take no lock: its own thread may hold it."""
        self._stop = True

    def _run_once(self) -> int:
        with SshProcess(self._host, self._redis, _hand_on) as actor:
            actor.greet()
            self._is_there = self._was_there = True
            actor.order(self._words, self._db, self._told)
            beat = stopping = 0.0
            while actor.runs():
                now = time.monotonic()
                if not stopping and self._ends():
                    stopping = now
                    actor.ask_to_stop()
                if stopping and now - stopping > _STOPS_S and self._reader.poll(0):
                    return 1
                if now - beat >= BEAT_S:
                    beat = now
                    actor.beat()
                time.sleep(_LOOK_S)
            actor.raise_if_lost()
            return actor.exit_code or 0

    def _ends(self) -> bool:
        """Return whether this process was asked to stop, or its start script was killed."""
        return self._stop or bool(self._reader.poll(0))


def _hand_on(line: bytes) -> None:
    with suppress(OSError):  # nobody reads it any more, and the actor may still save
        os.write(1, line)


def main() -> int:
    """Run an actor there; return its exit code, or 2 for a host that cannot run it."""
    name, folder, redis, db, *words = sys.argv[1:]
    actor = RemoteActor(Host(name, 1, folder, ()), redis, int(db), words, os.environ)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, actor.stop)
    try:
        return actor.run()
    except UserError as error:
        _hand_on(f"{error}\n".encode())
        return 2


if __name__ == "__main__":
    sys.exit(main())

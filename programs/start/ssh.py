"""Connect to a host by ssh, with the user's own keys and configuration, and run an actor there.

The tunnel through which an actor reaches Redis goes by the same connection, so that Redis need not listen on a network
and asks for no further secret; it ends with the connection. Nothing that is put into the remote command differs from
case to case: folder, options and secrets go by the standard input, past the shells of both sides.
"""

import json
import random
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import IO

from rainbow_iqn_apex.common import schema
from rainbow_iqn_apex.common.checkout import Code, present
from rainbow_iqn_apex.common.errors import Stopped, UserError
from rainbow_iqn_apex.common.text import one_line
from rainbow_iqn_apex.programs.process import StopRequest
from rainbow_iqn_apex.programs.start.hosts import OPTION, Host
from rainbow_iqn_apex.programs.start.remote_messages import BEAT, FAULT, HELLO, STOP, Order

_GREETS_S = 60.0  # with the connection, the login, and the imports there
_CHECKS_AT_ONCE = 8  # an sshd drops many connections that come at once, and many hosts may lie behind one
_TRIES, _PAUSE_S = 5, 2.0
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
_LOST = 255  # ssh's own exit code
_SILENT = ("Allocated port", "Warning: Permanently added")


class LostError(Exception):
    """There is no connection, which another try may give."""


class Connection:
    """A connection with what runs on the other side; a context manager."""

    def __init__(self, host: Host, redis: str) -> None:
        """`redis` is host:port of the server, as it is reached from here. Raises LostError if ssh does not start."""
        self._host = host
        self.take: Callable[[bytes], None] = lambda _: None  # gets the lines of the actor
        self._port = 0  # of the tunnel's other end
        self._refused = False  # the tunnel
        self._hello = b""
        self._last = ""
        command = [*_SSH, "-R", f"127.0.0.1:0:{redis}", "--", host.name, _THERE]
        pipe = subprocess.PIPE
        try:
            self._popen = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        except OSError as error:
            raise LostError(f"ssh does not start here: {error.strerror}") from error
        self._threads = [
            threading.Thread(target=target, args=(stream,), name=f"ssh {host.name}", daemon=True)
            for target, stream in ((self._read_errors, self._popen.stderr), (self._read_lines, self._popen.stdout))
        ]
        for thread in self._threads:
            thread.start()
        self._send(f"{host.folder}\n".encode())

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
                self.take(line)
            elif line.startswith((HELLO, FAULT)):
                self._hello = line

    def greet(self, leaving: threading.Event | None = None) -> None:
        """Wait until the other side is there; raises UserError for a host that cannot help, LostError for none.

        Raises LostError, too, once `leaving` is set.
        """
        deadline = time.monotonic() + _GREETS_S
        while not (self._hello and (self._port or self._refused or self._hello.startswith(FAULT))):
            ended = self._popen.poll() is not None
            if leaving and leaving.is_set():
                raise LostError("not asked to the end")
            if ended or time.monotonic() > deadline:
                self._join()
                if ended and self._hello.startswith(FAULT):
                    break
                self._explain_end()
            time.sleep(0.05)
        if self._hello.startswith(FAULT):
            fault = _FAULTS.get(self._hello.removeprefix(FAULT).decode(errors="replace").strip(), "cannot help")
            raise UserError(f"{self._host.name}: {fault.format(self._host.folder)}")
        self._compare()
        if self._refused:
            raise UserError(f"{self._host.name}: its sshd lets no tunnel through: set AllowTcpForwarding there")

    def _explain_end(self) -> None:
        if (code := self.exit_code()) is None:
            raise LostError(f"no answer within {_GREETS_S:.0f} s")
        raise UserError(f"{self._host.name}: {self._host.folder} there cannot run an actor: {self._last or code}")

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

    def start(self, words: Sequence[str], db: int, told: dict[str, str]) -> None:
        """Start an actor there, with these options, and variables besides."""
        environment = told | {"REDIS_URL": f"redis://127.0.0.1:{self._port}/{db}"}
        self._send(json.dumps(asdict(Order(list(words), environment))).encode() + b"\n")

    def beat(self) -> None:
        """Tell the other side that this one is there."""
        self._send(BEAT)

    def ask_to_stop(self) -> None:
        """Ask the actor to save and stop."""
        self._send(STOP)

    def _send(self, data: bytes) -> None:
        assert self._popen.stdin is not None
        with suppress(OSError):  # it has ended, as `exit_code` tells
            self._popen.stdin.write(data)
            self._popen.stdin.flush()

    def exit_code(self) -> int | None:
        """Return the other side's exit code, None while it runs; raises LostError if the connection is lost."""
        code = self._popen.poll()
        if code is None:
            return None
        self._join()
        if code == _LOST or code < 0:
            raise LostError(self._last or "the connection was closed")
        return code

    def _join(self) -> None:
        for thread in self._threads:
            thread.join(5)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection, with which whatever runs there ends."""
        self._popen.kill()
        self._popen.wait()
        self._join()
        assert self._popen.stdin is not None
        with suppress(OSError):  # what is left to be sent
            self._popen.stdin.close()


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
            with Connection(host, redis) as connection:
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

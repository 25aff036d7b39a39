"""A proxy that reads the Redis protocol, and answers some commands itself, as a server in trouble would."""

import random
import socket
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, NamedTuple

from tests.chaos.listener import Listener

_GREETING = {"AUTH", "HELLO", "SELECT"}  # a server in trouble answers these as ever
_WITHOUT_KEYS = _GREETING | set("BGREWRITEAOF CLIENT EXEC INFO MULTI PING PUBSUB SCAN SCRIPT SUBSCRIBE".split())
_WRITES = set("DEL EVAL EVALSHA HSET SET UNLINK XADD XTRIM".split())  # scripts may write


class Answer(NamedTuple):
    """What a server in trouble answers, and to which commands."""

    text: str  # empty: the beginning of its true reply, and the connection ends
    concerns: Callable[[str], bool]


ANSWERS = {
    "MOVED": Answer("MOVED 3999 127.0.0.1:6381", lambda command: command not in _WITHOUT_KEYS),
    "ASK": Answer("ASK 3999 127.0.0.1:6381", lambda command: command not in _WITHOUT_KEYS),
    "CLUSTERDOWN": Answer("CLUSTERDOWN The cluster is down", lambda command: command not in _WITHOUT_KEYS),
    "LOADING": Answer("LOADING Redis is loading the dataset in memory", lambda command: command not in _GREETING),
    "READONLY": Answer("READONLY You can't write against a read only replica.", _WRITES.__contains__),
    "BUSY": Answer(
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        lambda command: command not in _GREETING,
    ),
    "MISCONF": Answer(
        "MISCONF Errors writing to the AOF file: No space left on device", {*_WRITES, "PING"}.__contains__
    ),
    "OOM": Answer("OOM command not allowed when used memory > 'maxmemory'.", _WRITES.__contains__),
    "a torn reply": Answer("", lambda command: command not in _GREETING),
}


class Schedule:
    """Decides by dice which commands get an answer: a share of those that it concerns, none before it begins."""

    def __init__(self, answer: Answer, seed: int) -> None:
        self.share = 0.0
        self.answered: Counter[str] = Counter()  # by command
        self._answer = answer
        self._dice = random.Random(seed)

    def __call__(self, command: str) -> str | None:
        """Return what to answer, None to let the server answer."""
        if not self._answer.concerns(command) or self._dice.random() >= self.share:
            return None
        self.answered[command] += 1
        return self._answer.text


class RespProxy(Listener):
    """Stands before a Redis server on loopback; use as a context manager."""

    def __init__(self, target: int, schedule: Schedule) -> None:
        super().__init__()
        self.schedule = schedule
        self._target = target
        self._connections: set[socket.socket] = set()

    def reset(self) -> None:
        """End all connections."""
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _serve(self, near: socket.socket) -> None:
        with suppress(OSError), near, socket.create_connection(("127.0.0.1", self._target)) as far:
            ends = {near, far}
            self._connections |= ends
            for end in ends:
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with near.makefile("rb") as requests, far.makefile("rb") as replies:
                while request := _read(requests):
                    command = request.split(b"\r\n", 3)[2].decode().upper()
                    answer = self.schedule(command)
                    if answer:
                        near.sendall(f"-{answer}\r\n".encode())
                        continue
                    far.sendall(request)
                    if command == "SUBSCRIBE":
                        threading.Thread(target=_pass_on, args=(near, far), daemon=True).start()
                        _pass_on(far, near)
                    reply = _read(replies)
                    near.sendall(reply if answer is None else reply[: len(reply) // 2])
                    if answer is not None:
                        break
            self._connections -= ends


def _read(file: BinaryIO) -> bytes:
    """Return the next value of the protocol, as it was sent; empty at the end."""
    line = file.readline()
    if line[:1] not in b"$*%" or line[1:2] == b"-":
        return line
    count = int(line[1:] or 0) * (2 if line[:1] == b"%" else 1)  # a map has a value for each key
    return line + (file.read(count + 2) if line[:1] == b"$" else b"".join(_read(file) for _ in range(count)))


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_RDWR)

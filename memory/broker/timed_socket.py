"""A socket that gives up in time."""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from rainbow_iqn_apex.common import waiting

_MOST_REFUSAL = 200  # bytes of an error that is quoted
_TICK_S = 0.5  # from a request to stop until a command under way heeds it


class _Away(Protocol):
    @property
    def over(self) -> bool:
        """Whether a command has been tried for long enough."""

    def receive(self, count: int) -> None:
        """Count bytes of a reply."""


class TimedSocket:
    """A socket that gives up a command in time.

    The timeout of a plain socket begins anew with every byte, and does not heed a request to stop.
    """

    def __init__(self, plain: Any, away: _Away) -> None:
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
        left = math.inf if timeout is None else timeout
        try:
            while not self._away.over and left > 0:
                self._plain.settimeout(min(left, _TICK_S))
                left -= _TICK_S
                with suppress(TimeoutError):
                    return transfer(data)
                waiting.be_late()
            raise TimeoutError
        finally:
            self._plain.settimeout(timeout)

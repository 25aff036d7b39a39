"""A client as an inference server sees it: a socket that never blocks, with bounds for all that is read and kept.

A client that sends slowly, or does not read, delays nobody: what it has not sent is not waited for, and beside the
requests that are not answered, one more is read of it at most.
"""

import secrets
import socket
import ssl
import time
from collections import OrderedDict
from contextlib import suppress

from rainbow_iqn_apex.memory.rows import Arrays
from rainbow_iqn_apex.programs.inference.messages import (
    LENGTH,
    MOST_GREETING,
    Challenge,
    Hello,
    Refusal,
    cut,
    hear,
    is_proof,
    say,
    stop_of,
)

MOST_OPEN = 4  # requests of a client that are not answered
_MOST_KEPT = 8  # states of a client: its groups of environments, and those of calls under way
_GREETING_S = 60.0  # for the greetings, between which this server may compute batches
_STUCK_S = 30.0  # for the rest of a message that has begun, and for the client to read an answer
_READ = 1 << 18
_WAITS = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Peer:
    """One client; `most` is the largest request."""

    def __init__(self, link: socket.socket, secret: bytes, most: int) -> None:
        link.setblocking(False)
        self.link = link
        self.is_known = False  # whether it has proved that it belongs to the run
        self.asked: dict[int, float] = {}  # when each request came that is not answered, by the call
        self.told = 0.0  # when it was last told to wait
        self.kept: OrderedDict[int, Arrays] = OrderedDict()  # states, by the call after which they are
        self._secret = secret
        self._most = most
        self._own_nonce = secrets.token_hex(16)
        self._in, self._out = bytearray(), bytearray()
        self._since = time.monotonic()  # when it was last not in the middle of something
        self._is_shaking = isinstance(link, ssl.SSLSocket)  # whether TLS has still to begin
        self.send(say(Challenge(self._own_nonce)))

    @property
    def wants_to_write(self) -> bool:
        """Whether something is left to send."""
        return bool(self._out) and not self._is_shaking

    @property
    def may_read(self) -> bool:
        """Whether more may be read of it: while it is sent an answer, as much as one request.

        It may have to send a whole request before it reads that answer.
        """
        if self._out and not self._is_shaking:
            return len(self._in) <= self._longest + LENGTH.size
        return self._is_shaking or self._may_ask(len(self.asked))

    @property
    def has_more(self) -> bool:
        """Whether `complete` would return something."""
        return self._may_ask(len(self.asked)) and stop_of(self._in, self._longest) is not None

    def _may_ask(self, asked: int) -> bool:
        """Return whether another request is taken; one that does not read its answers has to wait, too."""
        return not self._out and asked < MOST_OPEN

    def is_stuck(self, now: float) -> bool:
        """Return whether it has been in the middle of something for too long."""
        if not self.is_known:
            return now - self._since > _GREETING_S
        return bool(self._in or self._out) and not self.asked and now - self._since > _STUCK_S

    def read(self) -> None:
        """Read what has come; raises OSError at the end."""
        if self.is_known and not self._in:
            self._since = time.monotonic()
        with suppress(*_WAITS):
            self._begin_tls()
            while len(self._in) <= self._longest + LENGTH.size:
                data = self.link.recv(_READ)
                if not data:
                    raise ConnectionResetError("the client has gone")
                self._in += data
                if len(data) < _READ:
                    break

    @property
    def _longest(self) -> int:
        return self._most if self.is_known else MOST_GREETING

    def complete(self) -> list[bytes]:
        """Return messages that have been read, as many as may wait; raises Refusal for one that is too long."""
        found: list[bytes] = []
        while self._may_ask(len(self.asked) + len(found)) and (data := cut(self._in, self._longest)) is not None:
            found.append(data)
            self._since = time.monotonic()
            if not self.is_known:
                break
        return found

    def greet(self, data: bytes) -> Hello:
        """Return the client's greeting; raises Refusal unless it knows the secret."""
        hello: Hello = hear(data, Hello)
        if not is_proof(hello.proof, self._secret, "client", self._own_nonce):
            raise Refusal("the client does not know the run's secret")
        self.is_known = True
        return hello

    def keep(self, call: int, state: Arrays) -> None:
        """Keep the state after a call; the oldest ones are forgotten, which the client can send again."""
        self.kept[call] = state
        while len(self.kept) > _MOST_KEPT:
            self.kept.popitem(last=False)

    def send(self, data: bytes) -> None:
        """Send what the client takes now, and keep the rest; raises OSError if it has gone."""
        if not self._out:
            self._since = time.monotonic()
        self._out += data
        self.write()

    def write(self) -> None:
        """Send as much as the client takes."""
        with suppress(*_WAITS):
            self._begin_tls()
            while self._out:
                sent = self.link.send(self._out)
                del self._out[:sent]
                self._since = time.monotonic()

    def _begin_tls(self) -> None:
        if self._is_shaking:
            assert isinstance(self.link, ssl.SSLSocket)
            self.link.do_handshake()
            self._is_shaking = False

    def close(self) -> None:
        """End the connection."""
        with suppress(OSError):
            self.link.close()

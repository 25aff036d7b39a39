"""An actor's connection to an inference server."""

import secrets
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from rainbow_iqn_apex.memory.broker.access import Tls
from rainbow_iqn_apex.memory.broker.inference_servers import Address
from rainbow_iqn_apex.memory.broker.leases import this_host
from rainbow_iqn_apex.programs.inference import tcp
from rainbow_iqn_apex.programs.inference.messages import (
    MOST_GREETING,
    Challenge,
    Hello,
    Refusal,
    Welcome,
    cut,
    hear,
    is_proof,
    proof,
    say,
)

LEAST_S, MOST_S = 5.0, 300.0  # for which a client waits for a server that says nothing
_LONGER = 4  # times the time of an answer
_FORGOTTEN = 0.01  # of the wait, with each answer
_TICK_S = 0.2
MOST_ANSWER = 1 << 28  # bytes


class Asker(NamedTuple):
    """The actor that asks, or the evaluation actor."""

    actor: int
    evaluates: bool


class Patience:
    """How long to wait for a server that says nothing until it counts as gone.

    That is some times longer than what its answers took. It doubles whenever a server is given up, as the only one
    there may just be slow.
    """

    def __init__(self) -> None:
        self.seconds = LEAST_S

    def answered(self, took: float) -> None:
        """Count an answer that took so many seconds."""
        self.seconds = min(MOST_S, max(LEAST_S, _LONGER * took, (1 - _FORGOTTEN) * self.seconds))

    def ended(self) -> None:
        """Count a server that was given up."""
        self.seconds = min(MOST_S, 2 * self.seconds)


class Link:
    """A connection to one server, which has proved that it belongs to the run; raises OSError or Refusal otherwise."""

    def __init__(
        self, address: Address, who: Asker, secret: bytes, tls: Tls | None, patience: Patience,
        check: Callable[[], None],
    ) -> None:  # fmt: skip
        """Call `check` while waiting for the greeting, and let what it raises pass."""
        self.address = address
        self._patience = patience
        self._in = bytearray()
        self._socket = _connect(address, tls, patience.seconds, check)
        try:
            self.welcome = self._greet(who, secret, check)
        except BaseException:
            self.close()
            raise

    def _greet(self, who: Asker, secret: bytes, check: Callable[[], None]) -> Welcome:
        challenge: Challenge = hear(self._greeting(check), Challenge)
        nonce = secrets.token_hex(16)
        self.send(say(Hello(proof(secret, "client", challenge.nonce), nonce, who.actor, who.evaluates)))
        welcome: Welcome = hear(self._greeting(check), Welcome)
        if not is_proof(welcome.proof, secret, "server", nonce):
            raise Refusal("the server does not know the run's secret")
        return welcome

    def send(self, data: bytes) -> None:
        """Send a frame; raises OSError, also if the server does not read it for a while."""
        self._socket.settimeout(self._patience.seconds)
        self._socket.sendall(data)

    def receive(self, seconds: float, most: int = MOST_ANSWER) -> bytes | None:
        """Return the next message, None if it does not come within so many seconds; raises OSError or Refusal."""
        end = time.monotonic() + seconds
        while (found := cut(self._in, most)) is None:
            if (left := end - time.monotonic()) <= 0:
                return None
            self._socket.settimeout(left)
            with suppress(TimeoutError):
                data = self._socket.recv(1 << 18)
                if not data:
                    raise ConnectionResetError("the inference server has gone")
                self._in += data
        return found

    def _greeting(self, check: Callable[[], None]) -> bytes:
        end = time.monotonic() + self._patience.seconds
        while (data := self.receive(_TICK_S, MOST_GREETING)) is None:
            check()
            if time.monotonic() >= end:
                raise TimeoutError("the inference server does not answer")
        return data

    def close(self) -> None:
        """End the connection."""
        with suppress(OSError):
            self._socket.close()


def _connect(address: Address, tls: Tls | None, seconds: float, check: Callable[[], None]) -> socket.socket:
    if address.path and address.machine == this_host():
        with suppress(OSError):  # another machine may have the same name, or the socket may be in another container
            return _connect_here(address.path, seconds)
    if not address.port:
        raise ConnectionRefusedError("it serves its own machine alone")
    try:
        link = socket.create_connection((address.host, address.port), LEAST_S)  # the kernel of a busy server accepts it
    except TimeoutError as error:  # is no reason for more patience
        raise ConnectionError("its host does not answer") from error
    tcp.prepare(link)
    return link if tls is None else _encrypted(link, address, tls, seconds, check)


def _encrypted(
    link: socket.socket, address: Address, tls: Tls, seconds: float, check: Callable[[], None]
) -> ssl.SSLSocket:
    end = time.monotonic() + seconds
    context = ssl.create_default_context(cafile=tls.ca_certs)
    wrapped = context.wrap_socket(link, server_hostname=address.host, do_handshake_on_connect=False)
    try:
        wrapped.settimeout(_TICK_S)
        while True:
            with suppress(TimeoutError):
                wrapped.do_handshake()
                return wrapped
            check()
            if time.monotonic() >= end:
                raise TimeoutError("the inference server does not answer")
    except BaseException:
        wrapped.close()
        raise


def _connect_here(path: str, seconds: float) -> socket.socket:
    link = socket.socket(socket.AF_UNIX)
    try:
        link.settimeout(seconds)
        link.connect(path)
    except BaseException:
        link.close()
        raise
    return link

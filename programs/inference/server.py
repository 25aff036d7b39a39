"""The server's side of inference: its socket, and the loop that reads requests, lets them be computed, and answers.

One thread does this, so that nothing has to be guarded, and a batch that computes takes no turns with it. A thread of
ZeroMQ reads and writes meanwhile: a client that sends slowly, or does not read, delays nobody.
"""

import errno
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import ceil
from statistics import fmean
from typing import NamedTuple

import zmq
from zmq.utils import z85
from zmq.utils.monitor import recv_monitor_message

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.text import one_line, reason
from rainbow_iqn_apex.programs.inference.exchange import (
    Answer,
    ClientId,
    Refusal,
    Request,
    Welcome,
    decode,
    encode,
    endpoint,
    greet,
    greeted,
    open_socket,
)
from rainbow_iqn_apex.programs.inference.services import BatchedPolicy, Client, PerClientPolicies

_MOST_OPEN = 4  # requests of a client that are not answered; ours have three
_UNREAD = 64  # answers for a client that does not read; it gets no more
_TURN = 4096  # messages that are read before what has come is computed
_WAIT_S = 1.0  # after which a client is told that its request waits
_LOOK_S = 0.2  # between two looks at what is not a request
_GREETING_S = 10  # for a connection to prove that it has the server's key
_BACKLOG = 512
_MESSAGE_BYTES = 1 << 16  # of a message beside its arrays
_REMEMBERED = 1000  # answers, for the report

Service = PerClientPolicies | BatchedPolicy


class Listening(NamedTuple):
    """An open socket, and where clients find it."""

    socket: zmq.Socket[bytes]
    key: str  # 64 hexadecimal digits, without which no client can begin a connection
    local_port: int  # of this machine
    port: int  # of the host for other machines; 0: none


@contextmanager
def listening(host: str, port: int) -> Iterator[Listening]:
    """Listen on a port of this machine alone, and on a port of a host if one is named; raises UserError if that fails.

    No socket in the file system: ZeroMQ 4.3 aborts the process if one of those may open no more files.
    """
    context = zmq.Context()
    try:
        router = open_socket(context, zmq.ROUTER)
        public, secret = zmq.curve_keypair()
        router.curve_server = True
        router.curve_publickey = public
        router.curve_secretkey = secret
        router.sndhwm = _UNREAD
        router.backlog = _BACKLOG
        router.handshake_ivl = 1000 * _GREETING_S
        router.bind("tcp://127.0.0.1:*")
        local_port = _port_of(router)
        if host:
            _bind(router, host, port)
        yield Listening(router, z85.decode(public).hex(), local_port, _port_of(router) if host else 0)
    finally:
        context.destroy()


def _port_of(router: zmq.Socket[bytes]) -> int:
    """Return the port to which a socket was bound last."""
    return int(router.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])


def _bind(router: zmq.Socket[bytes], host: str, port: int) -> None:
    """Listen on the address of a host's name; on all of this machine, if the name is another network's."""
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise UserError(f"--inference-host: {host!r} cannot be found ({reason(error)})") from error
    router.ipv6 = is_ipv6 = family == socket.AF_INET6
    failed = 0
    for address in (str(place[0]), "::" if is_ipv6 else "0.0.0.0"):
        try:
            router.bind(endpoint(address, port or "*", is_ipv6=is_ipv6))
        except zmq.ZMQError as error:
            failed = error.errno or 0
            if failed not in (errno.EADDRNOTAVAIL, errno.ENODEV):  # ZeroMQ takes it for an interface's name
                break
        else:
            return
    option = "--inference-port" if port else "--inference-host"
    raise UserError(f"{option}: cannot listen on {host}:{port} ({os.strerror(failed)})")


class InferenceServer:
    """Answers the clients of a socket by a service; a client may ask about `each` environments at once."""

    def __init__(self, service: Service, router: zmq.Socket[bytes], *, each: int) -> None:
        self._service = service
        self._router = router
        self._each = each
        self._most = (each + service.spec.window) * service.schema.environment_bytes + _MESSAGE_BYTES
        self._events = router.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self._connected: set[int] = set()  # file descriptors of connections, with those of strangers for _GREETING_S
        self._clients: dict[bytes, Client] = {}  # by their routes
        self._latencies: deque[float] = deque(maxlen=_REMEMBERED)  # seconds from a request to its answer
        self._answered = 0  # requests, ever
        self._refused = 0

    @property
    def clients(self) -> int:
        """Return how many clients are connected."""
        return min(len(self._connected), len(self._clients))  # of a client that has gone, the state stays

    def run(self, look: Callable[[], bool]) -> None:
        """Serve until `look`, which is called every now and then, returns that this shall end."""
        next_look = 0.0
        while True:
            now = time.monotonic()
            is_due = now >= next_look
            if is_due:
                next_look = now + _LOOK_S
                self._count_connected()
                if look():
                    return
            self._router.poll(ceil(1000 * min(self._service.wait_s(now), next_look - now)))
            self._read()
            if is_due:  # after what has come during a batch was read
                self._tell_to_wait(time.monotonic())
            if self._service.wait_s(time.monotonic()) == 0.0:
                for client, answer in self._service.work():
                    self._give(client, answer)

    def _count_connected(self) -> None:
        while self._events.poll(0):
            event = recv_monitor_message(self._events)
            if event["event"] == zmq.EVENT_DISCONNECTED:
                self._connected.discard(event["value"])
            else:
                self._connected.add(event["value"])

    def _read(self) -> None:
        """Take what clients have sent."""
        with suppress(zmq.Again):
            for _ in range(_TURN):
                route, *parts = self._router.recv_multipart(zmq.NOBLOCK)
                self._take(route, b"".join(parts))

    def _take(self, route: bytes, data: bytes) -> None:
        client = self._clients.get(route)
        try:
            if client is None:
                self._welcome(route, greeted(data, ClientId))
                return
            if len(data) > self._most:
                raise Refusal(f"a message of {len(data)} bytes")
            request = decode(data, Request)
            if "places" in request.arrays and request.arrays["places"].size > self._each:
                raise Refusal(f"a request about more than {self._each} environments")
            if request.call in client.asked:
                raise Refusal(f"call {request.call} twice")
            if len(client.asked) == _MOST_OPEN:
                raise Refusal(f"more than {_MOST_OPEN} requests at once")
            client.asked[request.call] = time.monotonic()
            for answer in self._service.ask(client, request):
                self._send(client, answer)
        except Refusal as refusal:
            self._refuse(route, refusal)

    def _welcome(self, route: bytes, who: ClientId) -> None:
        """Take in a client; forget an earlier connection of the same actor."""
        for old in [client for client in self._clients.values() if client.who == who]:
            self._forget(old)
        self._clients[route] = Client(route, who)
        service = self._service
        alone = service.computes_alone(who)
        welcome = Welcome(service.spec, service.schema.answer, alone, service.schema.places)
        self._router.send_multipart([route, greet(welcome)])

    def _give(self, client: Client, answer: Answer | Refusal) -> None:
        if self._clients.get(client.route) is not client:
            return  # it was refused meanwhile
        if isinstance(answer, Refusal):
            self._refuse(client.route, answer)
        else:
            self._send(client, answer)

    def _send(self, client: Client, answer: Answer) -> None:
        self._latencies.append(time.monotonic() - client.asked.pop(answer.call))
        self._answered += 1
        self._router.send_multipart([client.route, encode(answer)])

    def _tell_to_wait(self, now: float) -> None:
        """Show clients whose requests wait, as for weights or behind many others, that this server lives."""
        for client in self._clients.values():
            if not client.asked or now - max(client.told, min(client.asked.values())) < _WAIT_S:
                continue
            client.told = now
            call = min(client.asked, key=client.asked.__getitem__)
            answer = Answer(call, self._service.version, wants_state=False, arrays={}, wait=True)
            self._router.send_multipart([client.route, encode(answer)])

    def _refuse(self, route: bytes, why: Refusal) -> None:
        """Let a client know that it is answered no more; print that once in a while."""
        self._refused += 1
        if self._refused & (self._refused - 1) == 0:  # 1, 2, 4, 8, ...
            print(f"Refused a client ({self._refused} so far): {one_line(why)}", flush=True)
        if (client := self._clients.get(route)) is not None:
            self._forget(client)
        self._router.send_multipart([route, b""])

    def _forget(self, client: Client) -> None:
        del self._clients[client.route]
        self._service.leave(client)

    def values(self) -> dict[str, float]:
        """Return what the server reports of itself; called from another thread."""
        batches = list(self._service.batches)
        latencies = sorted(self._latencies)
        found: dict[str, float] = {
            "inference/clients": self.clients,
            "inference/requests": self._answered,
            "actor/version": self._service.version,
        }
        if batches:
            found["inference/batch"] = fmean(batches)
        if latencies:
            found["inference/latency"] = latencies[len(latencies) // 2]
            found["inference/slowest"] = latencies[len(latencies) * 99 // 100]
        return found

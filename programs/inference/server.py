"""The inference server's loop: reads requests, computes those of many clients together, and answers.

One thread does all of it, so that nothing has to be guarded, and a batch that computes takes no turns with sockets. The
systems' buffers hold what arrives meanwhile.
"""

import errno
import selectors
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from statistics import fmean

from rainbow_iqn_apex.common.text import one_line
from rainbow_iqn_apex.programs.inference import tcp
from rainbow_iqn_apex.programs.inference.computing import REMEMBERED
from rainbow_iqn_apex.programs.inference.hosting import Alone
from rainbow_iqn_apex.programs.inference.messages import Answer, Refusal, Request, Welcome, decode, encode, proof, say
from rainbow_iqn_apex.programs.inference.peers import Peer
from rainbow_iqn_apex.programs.inference.together import Together

MOST_PEERS = 4096
_MOST_UNKNOWN = 64  # that have not proved yet that they belong to the run
_WAIT_S = 1.0  # after which a client is told that its request waits
_LOOK_S = 0.2  # between two looks at what is not a request
_MESSAGE_BYTES = 1 << 16  # of a message beside its arrays
_NO_MORE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)  # files or memory for a connection

Service = Alone | Together


class InferenceServer:
    """Answers the clients of its listening sockets by a service; `close` it in the end.

    A client may ask about `each` environments at once.
    """

    def __init__(
        self, service: Service, secret: bytes, listening: Sequence[socket.socket],
        *, each: int, tls: ssl.SSLContext | None = None,
    ) -> None:  # fmt: skip
        self._service = service
        self._secret = secret
        self._tls = tls
        self._each = each
        self._most = (each + service.spec.window) * service.forms.environment_bytes + _MESSAGE_BYTES
        self._peers: dict[int, Peer] = {}  # by the number of the socket
        self._unfinished: list[Peer] = []  # have said more than is taken of one peer at a time
        self._selector = selectors.DefaultSelector()
        self._not_listening = list(listening)
        self._listen()
        self._latencies: deque[float] = deque(maxlen=REMEMBERED)  # seconds from a request to its answer
        self._answered = 0  # requests, ever
        self._refused = 0

    @property
    def clients(self) -> int:
        """Return how many clients belong to the run."""
        return sum(peer.is_known for peer in list(self._peers.values()))

    def run(self, look: Callable[[], bool]) -> None:
        """Serve until `look`, which is called every now and then, returns that this shall end."""
        next_look = 0.0
        while True:
            now = time.monotonic()
            is_due = now >= next_look
            if is_due:
                next_look = now + _LOOK_S
                if look():
                    return
            unfinished, self._unfinished = self._unfinished, []
            wait = 0.0 if unfinished else min(self._service.wait_s(now), next_look - now)
            for key, events in self._selector.select(max(0.0, wait)):
                if key.data is None:
                    assert isinstance(key.fileobj, socket.socket)
                    self._accept(key.fileobj)
                else:
                    self._serve(key.data, events)
            for peer in unfinished:
                self._serve(peer, 0)
            if is_due:  # after what has come during a batch was read
                self._drop_stuck(now)
                self._listen()
                self._tell_to_wait(time.monotonic())
            if self._service.wait_s(time.monotonic()) == 0.0:
                for peer, answer in self._service.work():
                    self._give(peer, answer)

    def close(self) -> None:
        """End all connections."""
        for peer in list(self._peers.values()):
            self._drop(peer)
        self._selector.close()

    def _listen(self) -> None:
        while self._not_listening:
            place = self._not_listening.pop()
            place.setblocking(False)
            self._selector.register(place, selectors.EVENT_READ)

    def _accept(self, listening: socket.socket) -> None:
        """Take the connections that wait, up to as many as may be unknown; in a turn each, a batch delays the next."""
        for _ in range(max(1, _MOST_UNKNOWN - len(self._unknown()))):
            if not self._accept_one(listening):
                return

    def _unknown(self) -> list[Peer]:
        return [peer for peer in self._peers.values() if not peer.is_known]

    def _accept_one(self, listening: socket.socket) -> bool:
        """Take a connection, if one waits; returns whether there was one."""
        try:
            link, _ = listening.accept()
        except OSError as error:
            if error.errno in _NO_MORE:  # the socket stays ready: without a pause this loop would spin
                self._selector.unregister(listening)
                self._not_listening.append(listening)
            return False
        if len(unknown := self._unknown()) >= _MOST_UNKNOWN:
            self._drop(unknown[0])  # the oldest one: a client of ours proves within a moment that it belongs to the run
        if len(self._peers) >= MOST_PEERS:
            link.close()
            return True
        try:
            link.setblocking(False)
            if link.family != socket.AF_UNIX:
                tcp.prepare(link)
                if self._tls is not None:
                    link = self._tls.wrap_socket(link, server_side=True, do_handshake_on_connect=False)
            peer = Peer(link, self._secret, self._most)
        except OSError:
            link.close()
            return True
        self._peers[link.fileno()] = peer
        self._selector.register(link, selectors.EVENT_READ, peer)
        return True

    def _serve(self, peer: Peer, events: int) -> None:
        if peer.link.fileno() < 0:
            return  # it has gone meanwhile
        try:
            if events & selectors.EVENT_WRITE:
                peer.write()
            if events & selectors.EVENT_READ:
                peer.read()
            self._go_on(peer)
        except (Refusal, OSError) as error:
            self._drop(peer, error)

    def _go_on(self, peer: Peer) -> None:
        """Take some of what a client has said, and wait for what it may do next."""
        for data in peer.complete():
            self._take(peer, data)
        if peer.has_more:
            self._unfinished.append(peer)
        events = (selectors.EVENT_READ if peer.may_read else 0) | (selectors.EVENT_WRITE if peer.wants_to_write else 0)
        known = self._selector.get_map().get(peer.link)
        if known is None:
            if events:
                self._selector.register(peer.link, events, peer)
        elif not events:
            self._selector.unregister(peer.link)
        elif known.events != events:
            self._selector.modify(peer.link, events, peer)

    def _take(self, peer: Peer, data: bytes) -> None:
        service = self._service
        if not peer.is_known:
            hello = peer.greet(data)
            shown = proof(self._secret, "server", hello.nonce)
            alone = service.welcome(peer, hello)
            peer.send(say(Welcome(shown, service.spec, service.forms.answer, alone, service.forms.places)))
            return
        request = decode(data, Request)
        if "places" in request.arrays and request.arrays["places"].size > self._each:
            raise Refusal(f"a request about more than {self._each} environments")
        if request.call in peer.asked:
            raise Refusal(f"call {request.call} twice")
        peer.asked[request.call] = time.monotonic()
        for answer in service.ask(peer, request):
            self._send(peer, answer)

    def _give(self, peer: Peer, answer: Answer | Refusal) -> None:
        """Send an answer, and go on with what the client has asked while too much was open."""
        if peer.link.fileno() < 0:
            return  # it has gone meanwhile
        try:
            if isinstance(answer, Refusal):
                raise answer
            self._send(peer, answer)
            self._go_on(peer)
        except (Refusal, OSError) as error:
            self._drop(peer, error)

    def _send(self, peer: Peer, answer: Answer) -> None:
        self._latencies.append(time.monotonic() - peer.asked.pop(answer.call))
        self._answered += 1
        peer.send(encode(answer))

    def _tell_to_wait(self, now: float) -> None:
        """Show clients whose requests wait, as for weights or behind many others, that this server lives."""
        for peer in list(self._peers.values()):
            if not peer.asked or peer.wants_to_write or now - max(peer.told, min(peer.asked.values())) < _WAIT_S:
                continue
            peer.told = now
            call = min(peer.asked, key=peer.asked.__getitem__)
            try:
                peer.send(encode(Answer(call, self._service.version, wants_state=False, arrays={}, wait=True)))
                self._go_on(peer)
            except (Refusal, OSError) as error:
                self._drop(peer, error)

    def _drop_stuck(self, now: float) -> None:
        for peer in [peer for peer in self._peers.values() if peer.is_stuck(now)]:
            self._drop(peer, Refusal("the client is stuck"))

    def _drop(self, peer: Peer, why: Exception | None = None) -> None:
        """End a connection; a client that belongs to the run and is refused is told of, once in a while."""
        if isinstance(why, Refusal):
            self._refused += 1
            if self._refused & (self._refused - 1) == 0:  # 1, 2, 4, 8, ...
                print(f"Refused a client ({self._refused} so far): {one_line(why)}", flush=True)
        if self._selector.get_map().get(peer.link) is not None:
            self._selector.unregister(peer.link)
        self._peers = {number: each for number, each in self._peers.items() if each is not peer}
        self._service.leave(peer)
        peer.close()

    def values(self) -> dict[str, float]:
        """Return what the server reports of itself; called from another thread."""
        batches, latencies = list(self._service.batches), sorted(self._latencies)
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

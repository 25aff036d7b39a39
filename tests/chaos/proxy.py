"""A TCP proxy that delays, drops, cuts and resets what passes between one process and Redis."""

import socket
import struct
import threading
import time
from contextlib import suppress
from random import Random

from tests.chaos.listener import Listener

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of no time: closing tells the peer that the connection was reset


class Connection:
    """One connection, with a thread for each direction."""

    def __init__(self, proxy: "Proxy", near: socket.socket, far: socket.socket) -> None:
        self.dropping = proxy.dropping  # for good: bytes that TCP has lost make nobody's stream whole again
        self.cut_next_reply = False
        self._proxy = proxy
        self._near, self._far = near, far
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                time.sleep(self._proxy.latency + self._proxy.delay)
                if self.dropping:
                    continue
                data = self._proxy.damaged(data)
                if self.cut_next_reply and source is self._far:
                    sink.sendall(data[: len(data) // 2])
                    break
                sink.sendall(data)
        if source is self._near or not self.dropping:  # of a lost connection, the process hears nothing
            self.reset()

    def reset(self) -> None:
        """End it as a crash would."""
        for end in (self._near, self._far):
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.shutdown(socket.SHUT_RD)  # wakes the thread that reads, and sends nothing
            end.close()
        self._proxy.connections.discard(self)


class Proxy(Listener):
    """Listens on `port` and connects to a Redis server; use as a context manager.

    Within `Host.inside` it stands on that host.
    """

    def __init__(self, target: int, host: str = "127.0.0.1", listen: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        super().__init__(listen)
        self.connections: set[Connection] = set()
        self.latency = 0.0  # seconds, of each piece of data
        self.delay = 0.0  # more of them, for some time
        self.dropping = False  # what is sent arrives nowhere, also on new connections
        self.damage: Random | None = None  # draws which pieces of data have a flipped bit
        self.damaged_pieces = 0
        self._target = host, target

    def damaged(self, data: bytes) -> bytes:
        """Return the data, a thirtieth of it with a flipped bit while there is `damage`."""
        if (rng := self.damage) is None or rng.random() > 0.03:
            return data
        self.damaged_pieces += 1
        changed = bytearray(data)
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(changed)

    def _take(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(self._target, timeout=5)
        except OSError:  # Redis is down
            near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            near.close()
            return
        far.settimeout(None)
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connections.add(Connection(self, near, far))

    def reset(self) -> None:
        """Reset all connections."""
        for connection in list(self.connections):
            connection.reset()

    def reset_often(self, seconds: float) -> None:
        """Reset all connections three times within some time."""
        for _ in range(3):
            self.reset()
            time.sleep(seconds / 3)

    def cut(self, seconds: float) -> None:
        """End each connection in the middle of its next reply, and give that some time."""
        for connection in list(self.connections):
            connection.cut_next_reply = True
        time.sleep(seconds)

    def slow(self, seconds: float, delay: float) -> None:
        """Delay everything for some time."""
        self.delay = delay
        time.sleep(seconds)
        self.delay = 0.0

    def drop(self, seconds: float, *, silent: bool) -> None:
        """Lose everything for some time; `silent` connections never learn of it, others are reset afterwards."""
        self.dropping = True
        for connection in list(self.connections):
            connection.dropping = True
        time.sleep(seconds)
        self.dropping = False
        for connection in list(self.connections):
            if connection.dropping and not silent:
                connection.reset()

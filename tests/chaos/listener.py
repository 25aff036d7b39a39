"""What takes the connections of the tests' proxies."""

import socket
import threading
from contextlib import suppress
from typing import Self


class Listener:
    """Listens on `port`, and serves each connection in a thread of its own; a context manager."""

    def __init__(self, address: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self._listener = socket.create_server(address, backlog=64)
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()
        self.reset()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                self._take(self._listener.accept()[0])

    def _take(self, near: socket.socket) -> None:
        threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        """Serve a connection until it ends."""
        raise NotImplementedError

    def reset(self) -> None:
        """End all connections; here each ends with its client."""

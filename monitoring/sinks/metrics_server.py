"""The web server that Prometheus asks: whoever connects and then says nothing costs the run a few threads at most.

A connection gets one answer. A further one is closed at once while there are many, and each after some seconds.
"""

import ipaddress
import socket
import sys
import time
from contextlib import suppress
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, MetricsHandler

_MOST_CONNECTIONS = 16  # at once
_LONGEST_S = 5.0  # that a connection lasts


class MetricsServer(ThreadingHTTPServer):
    """Serves the metrics of a registry: `serve_forever` in a thread, then `shutdown` and `server_close`."""

    request_queue_size = 128  # connections that wait to be taken, or closed: with five, a crowd would hold up a scrape

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        """Open the port; raises OSError if that fails."""
        self.registry = registry
        self._names = {"localhost", host.lower(), socket.gethostname().lower()}
        self._begun: dict[Any, float] = {}  # by connection
        (self.address_family, *_, address), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        super().__init__((str(address[0]), port), _Handler)

    def is_asked_as(self, name: str) -> bool:
        """Return whether a request's Host is an address or a name of this machine.

        A foreign page, whose name leads to this machine, may so not read the metrics in a browser here.
        """
        try:
            host = urlsplit(f"//{name}").hostname or ""
            return host in self._names or bool(ipaddress.ip_address(host))
        except ValueError:
            return False

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own, or close it if there are too many."""
        if len(self._begun) < _MOST_CONNECTIONS:
            self._begun[request] = time.monotonic()
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        self._begun.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that last too long: their threads then find no more to read, and cannot write."""
        for request, begun in list(self._begun.items()):
            if time.monotonic() - begun > _LONGEST_S:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print a failure, but for a connection that was broken."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(MetricsHandler):  # type: ignore[misc] # of a package without types here
    """Answers one request, without a line of log."""

    server: MetricsServer

    def do_GET(self) -> None:  # noqa: N802 - so http.server calls it
        if self.server.is_asked_as(self.headers.get("Host", "")):
            self.registry = self.server.registry
            super().do_GET()
        else:
            self.send_error(403, "ask for an address, or for the name that --metrics-host gives")

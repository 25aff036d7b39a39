"""Answers Prometheus: the newest metrics of all processes of the run, at http://<host>:<port>/metrics.

A metric `group/name` becomes `riqx_group_name`, a counter with `_total` behind it as Prometheus has it. Labels are the
run's name, and the role and number of the process that has reported the metric. All metrics that an agent has named are
`riqx_train_given`: a name may hold any characters, so it is a label.
"""

import ipaddress
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, MetricsHandler
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family

from rainbow_iqn_apex.monitoring.metrics import METRICS, PRIORITY_BOUNDS, is_given
from rainbow_iqn_apex.monitoring.sinks.sink import Moment

_LABELS = ("run", "role", "number")
_FAMILIES = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily}
_MOST_CONNECTIONS = 16  # at once
_LONGEST_S = 5.0  # that a connection lasts


class PrometheusSink:
    """Serves the newest moment."""

    is_live = True

    def __init__(self, run: str, host: str, port: int) -> None:
        self._run = run
        self._host = host
        self._port = port
        self._server: MetricsServer | None = None
        self._moment: Moment | None = None

    def take(self, moment: Moment) -> None:
        """Show the metrics of a moment; raises OSError if the port cannot be opened."""
        self._moment = moment
        if self._server is None:
            registry = CollectorRegistry()
            registry.register(self)
            self._server = MetricsServer(self._host, self._port, registry)
            self._thread = threading.Thread(target=self._server.serve_forever, name="metrics port", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Close the port."""
        if self._server:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def describe(self) -> list[Family]:
        """Return none: the names are not known before the first moment."""
        return []

    def collect(self) -> Iterator[Family]:
        """Yield the metrics that any process has; called in a thread of the server."""
        if not (moment := self._moment):
            return
        learner = ("learner", 0, moment.values, moment.histograms)
        others = ((other.role, other.number, other.values, other.histograms) for other in moment.others)
        reports = [learner, *others]
        for metric in METRICS.values():
            family = _FAMILIES[metric.kind]("riqx_" + metric.name.replace("/", "_"), metric.help, labels=_LABELS)
            for role, number, values, histograms in reports:
                labels = (self._run, role, str(number))
                if isinstance(family, HistogramMetricFamily):
                    if counts := histograms.get(metric.name):
                        family.add_metric(labels, _buckets(counts), None)
                elif (value := values.get(metric.name)) is not None:
                    family.add_metric(labels, value)
            if family.samples:
                yield family
        given = GaugeMetricFamily("riqx_train_given", "of the learner, by the agent's names", labels=(*_LABELS, "name"))
        for name in filter(is_given, moment.values):
            given.add_metric((self._run, "learner", "0", name), moment.values[name])
        if given.samples:
            yield given


def _buckets(counts: list[float]) -> list[tuple[str, float]]:
    """Return how many values lie below each bound. They are of this moment: nothing adds up from scrape to scrape."""
    bounds = [*(f"{bound:.6g}" for bound in PRIORITY_BOUNDS), "+Inf"]
    return [(bound, sum(counts[: index + 1])) for index, bound in enumerate(bounds)]


class MetricsServer(ThreadingHTTPServer):
    """Web server of a registry: `serve_forever` in a thread, then `shutdown` and `server_close`.

    A client that connects and then sends nothing costs the run a few threads at most. A connection gets one answer; it
    is closed after some seconds, and at once while there are many.
    """

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

"""Answers Prometheus: the newest metrics of all processes of the run, at http://<host>:<port>/metrics.

A metric `group/name` becomes `riqx_group_name`, a counter with `_total` behind it as Prometheus has it. Labels are the
run's name, and the role and number of the process that has reported the metric. All metrics that an agent has named are
`riqx_train_given`: a name may hold any characters, so it is a label.
"""

import threading
from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family

from rainbow_iqn_apex.monitoring.metrics import METRICS, PRIORITY_BOUNDS, Metric, is_given
from rainbow_iqn_apex.monitoring.sinks.metrics_server import MetricsServer
from rainbow_iqn_apex.monitoring.sinks.sink import Moment

_LABELS = ("run", "role", "number")
_GIVEN_LABELS = (*_LABELS, "name")


class PrometheusSink:
    """Serves the newest moment."""

    is_live = True

    def __init__(self, run: str, host: str, port: int) -> None:
        self._run = run
        self._host = host
        self._port = port
        self._server: MetricsServer | None = None
        self._thread: threading.Thread | None = None
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
        if self._server and self._thread:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def describe(self) -> list[Family]:
        """Return none: the names are not known before the first moment."""
        return []

    def collect(self) -> Iterator[Family]:
        """Yield the metrics that any process has; called in a thread of the server."""
        if moment := self._moment:
            learner = ("learner", 0, moment.values, moment.histograms)
            others = ((other.role, other.number, other.values, other.histograms) for other in moment.others)
            reports = [learner, *others]
            for metric in METRICS.values():
                family = _family(metric)
                for role, number, values, histograms in reports:
                    labels = (self._run, role, str(number))
                    if isinstance(family, HistogramMetricFamily):
                        if counts := histograms.get(metric.name):
                            family.add_metric(labels, _buckets(counts), None)
                    elif (value := values.get(metric.name)) is not None:
                        family.add_metric(labels, value)
                if family.samples:
                    yield family
            given = GaugeMetricFamily("riqx_train_given", "of the learner, by the agent's names", labels=_GIVEN_LABELS)
            for name in filter(is_given, moment.values):
                given.add_metric((self._run, "learner", "0", name), moment.values[name])
            if given.samples:
                yield given


def _family(metric: Metric) -> GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily:
    kinds = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily}
    return kinds[metric.kind]("riqx_" + metric.name.replace("/", "_"), metric.help, labels=_LABELS)


def _buckets(counts: list[float]) -> list[tuple[str, float]]:
    """Return how many values lie below each bound. They are of this moment: nothing adds up from scrape to scrape."""
    bounds = [*(f"{bound:.6g}" for bound in PRIORITY_BOUNDS), "+Inf"]
    return [(bound, sum(counts[: index + 1])) for index, bound in enumerate(bounds)]

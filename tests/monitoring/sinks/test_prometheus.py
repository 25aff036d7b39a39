"""The learner's port for Prometheus, as an HTTP client and as Prometheus itself read it, and what Grafana asks for."""

import json
import re
import resource
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

from rainbow_iqn_apex.monitoring.metrics import METRICS, Metric
from tests.monitoring.sinks.moments import COUNTS, VALUES, moment
from tests.processes import ROOT, Processes
from tests.start_script import free_port

pytest.importorskip("prometheus_client", reason="an extra: pip install -r requirements-extra.txt")
from prometheus_client.parser import text_string_to_metric_families

from rainbow_iqn_apex.monitoring.sinks.prometheus import PrometheusSink
from rainbow_iqn_apex.monitoring.sinks.sink import Guarded

DOCS = ROOT / "docs" / "prometheus"
needs_prometheus = pytest.mark.skipif(not shutil.which("prometheus"), reason="needs apt-get install prometheus")


@contextmanager
def serving() -> Iterator[int]:
    """Yield the port of a sink that has taken a moment."""
    sink = PrometheusSink("pong", "127.0.0.1", port := free_port())
    with closing(sink):
        sink.take(moment(1000))
        yield port


def scrape(port: int) -> str:
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def exposed_name(metric: Metric) -> str:
    """Return the name that expressions have for a metric."""
    ending = {"counter": "_total", "histogram": "_bucket", "gauge": ""}[metric.kind]
    return f"riqx_{metric.name.replace('/', '_')}{ending}"


def expressions() -> list[str]:
    """Return what the dashboard asks Prometheus for; the variable's query is the last."""
    dashboard = json.loads((DOCS / "grafana_dashboard.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [*asked, dashboard["templating"]["list"][1]["query"]["query"]]


def test_every_metric_is_there_with_its_kind_meaning_and_process() -> None:
    with serving() as port:
        families = {family.name: family for family in text_string_to_metric_families(scrape(port))}
    assert families.keys() == {"riqx_" + name.replace("/", "_") for name in METRICS}
    for metric in METRICS.values():
        family = families["riqx_" + metric.name.replace("/", "_")]
        assert (family.type, family.documentation) == (metric.kind, f"{metric.unit} {metric.meaning}")
        assert {sample.name for sample in family.samples} == {exposed_name(metric)}
    cpu = [(sample.labels, sample.value) for sample in families["riqx_process_cpu"].samples]
    assert cpu == [
        ({"run": "pong", "role": "learner", "number": "0"}, VALUES["process/cpu"]),
        ({"run": "pong", "role": "actor", "number": "0"}, 0.5),
        ({"run": "pong", "role": "actor", "number": "1"}, 0.5),
    ]
    counts = [sample.value for sample in families["riqx_buffer_priorities"].samples]
    assert counts == [sum(COUNTS[: index + 1]) for index in range(len(COUNTS))]


def test_a_scrape_shows_the_newest_moment_on_loopback_alone() -> None:
    sink = PrometheusSink("pong", "127.0.0.1", port := free_port())
    with closing(sink):
        for step in (1, 2):
            sink.take(moment(step))
        assert 'riqx_time_total_timesteps_total{number="0",role="learner",run="pong"} 2.0' in scrape(port)
        with socket.socket() as outside:  # another address of this machine, as those of its network are
            assert outside.connect_ex(("127.0.0.2", port)) != 0
    with pytest.raises(URLError):
        scrape(port)


def test_a_port_that_is_taken_later_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", port := free_port())):
        sink = Guarded(PrometheusSink("pong", "127.0.0.1", port))
        sink.take(moment(1))
        sink.take(moment(2))
    printed = "Metrics are not written (PrometheusSink: [Errno 98] Address already in use)\n"
    assert capsys.readouterr().out == printed
    sink.take(moment(3))
    assert "riqx_train_loss" in scrape(port), "the port is free by now"
    sink.close()


SERVING = """
import sys, time
from pathlib import Path
from rainbow_iqn_apex.monitoring.sinks.prometheus import PrometheusSink
from tests.monitoring.sinks.moments import moment
PrometheusSink("pong", "127.0.0.1", int(sys.argv[1])).take(moment(7))
while True:
    time.sleep(0.02)
    with Path(sys.argv[2]).open("a") as file:
        file.write("a line of scores\\n")
"""


@pytest.mark.slow
def test_idle_connections_keep_neither_the_log_nor_scrapes_out(processes: Processes, tmp_path: Path) -> None:
    # Mutations: no bound on connections; none is ended; the end only of those that say nothing at all.
    port, log = free_port(), tmp_path / "pong.csv"
    learner = processes.start("-c", SERVING, port, log)
    learner.wait_until(log.exists, "the first line")
    resource.prlimit(learner.pid, resource.RLIMIT_NOFILE, (64, 64))
    ours = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(3000, ours[1]), ours[1]))
    with ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, ours)
        for place in range(1100):
            idle = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            with suppress(ConnectionError):  # it is closed already
                idle.send(b"GET /metrics HTTP/1.1\r\n" * (place % 2))  # and no end of it
        size = log.stat().st_size
        learner.wait_until(lambda: log.stat().st_size > size, "a further line")
        learner.wait_until(lambda: is_scraped(port), "an answer while all of these are open")
        assert learner.exit_code is None and learner.errors == ""


def is_scraped(port: int) -> bool:
    try:
        return "riqx_train_loss" in scrape(port)
    except OSError:
        return False


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9400", 200), ("localhost", 200), ("[::1]:9400", 200), (socket.gethostname(), 200),
        ("evil.example", 403), ("127.0.0.1.evil.example:9400", 403), ("", 403), ("[", 403),
    ],
)  # fmt: skip
def test_a_page_of_somebody_else_cannot_read_under_another_name(host: str, status: int) -> None:
    # Mutation: let every host name pass.
    with serving() as port, closing(HTTPConnection("127.0.0.1", port, timeout=10)) as client:
        client.request("GET", "/metrics", headers={"Host": host})
        answer = client.getresponse()
        assert (answer.status, b"riqx_" in answer.read()) == (status, status == 200)


def test_grafana_asks_only_for_what_there_is() -> None:
    names = {name for expression in expressions() for name in re.findall(r"riqx_\w+", expression)}
    assert names <= set(map(exposed_name, METRICS.values()))
    assert len(names) > 40


def test_a_moment_and_a_scrape_cost_milliseconds() -> None:
    sink = PrometheusSink("pong", "127.0.0.1", port := free_port())
    with closing(sink):
        sink.take(moment(0))
        before = time.process_time()
        for step in range(20):
            sink.take(moment(step))
            scrape(port)
        assert time.process_time() - before < 1.0  # 50 ms each; 6 ms in truth


@needs_prometheus
@pytest.mark.slow
def test_prometheus_scrapes_and_answers_the_dashboard(processes: Processes, tmp_path: Path) -> None:
    # Mutation: a counter exposed as a gauge, without `_total`.
    with serving() as port:
        config = (DOCS / "prometheus.yml").read_text()
        assert "localhost:9400" in config and "scrape_interval: 10s" in config
        config = config.replace("localhost:9400", f"127.0.0.1:{port}").replace("interval: 10s", "interval: 1s")
        (tmp_path / "prometheus.yml").write_text(config)
        own = free_port()
        words = (
            f"--config.file={tmp_path}/prometheus.yml --storage.tsdb.path={tmp_path}/data "
            f"--web.listen-address=127.0.0.1:{own}"
        ).split()
        process = processes.start(*words, program="prometheus", together=True)

        def query(expression: str) -> Any:
            try:
                with urlopen(f"http://127.0.0.1:{own}/api/v1/query?{urlencode({'query': expression})}") as answer:
                    return json.load(answer)["data"]["result"]
            except URLError:  # it starts
                return []

        process.wait_until(lambda: query("riqx_train_loss"), "the first scrape")
        assert [found["value"][1] for found in query('up{job="riqx"}')] == ["1"]
        *asked, variable = expressions()
        assert variable == "label_values(riqx_time_total_timesteps_total, run)"  # Grafana's own function
        answers = {expression: query(expression.replace("$run", "pong")) for expression in asked}
        # The actors of these moments report no shares of their time.
        empty = [expression for expression, found in answers.items() if not found and "avg(" not in expression]
        assert empty == []
        (median,) = query('histogram_quantile(0.5, riqx_buffer_priorities_bucket{run="pong"})')
        assert float(median["value"][1]) == pytest.approx(0.00487, rel=0.2)
        metadata = json.load(urlopen(f"http://127.0.0.1:{own}/api/v1/metadata"))["data"]
        assert {kind for (found,) in metadata.values() for kind in [found["type"]]} >= {"gauge", "counter", "histogram"}

"""Sinks that fail, hang or are slow: each is told of once, and nobody waits."""

import threading
import time

import pytest

from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.monitoring.overview import OverviewReader
from rainbow_iqn_apex.monitoring.sinks import sink as sink_module
from rainbow_iqn_apex.monitoring.sinks.sink import Feeder, Guarded, InThread, Moment
from tests.deadline import Clock, wait_until
from tests.monitoring.sinks.moments import moment


class Slow:
    """Writes a moment when it is allowed to."""

    is_live = False

    def __init__(self) -> None:
        self.allowed = threading.Event()
        self.written: list[int] = []
        self.closed = False

    def take(self, moment: Moment) -> None:
        self.allowed.wait()
        if moment.step == 1:
            raise RuntimeError("no\nnetwork")
        if moment.step >= 1000:
            raise RuntimeError(f"request {moment.step}")
        self.written.append(moment.step)

    def close(self) -> None:
        self.closed = True


def test_a_slow_sink_keeps_nobody_waiting(capsys: pytest.CaptureFixture[str]) -> None:
    sink = Slow()
    thread = InThread(sink)
    clock = Clock()
    for step in range(100):
        thread.take(moment(step))
    assert clock.seconds() < 5
    sink.allowed.set()
    thread.close()
    assert 5 <= len(sink.written) < 10 and sink.closed
    assert capsys.readouterr().out == (
        "Metrics are not written (Slow: too slow, moments are left out)\n"
        "Metrics are not written (Slow: RuntimeError: no network)\n"
    )


def test_failures_that_are_never_the_same_end_to_be_told(capsys: pytest.CaptureFixture[str]) -> None:
    sink = Slow()
    sink.allowed.set()
    guard = Guarded(sink)
    for step in range(1000, 1100):
        guard.take(moment(step))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 21 and lines[19].endswith("request 1019)") and "not told" in lines[20]


@pytest.mark.redis
def test_sinks_that_hang_are_waited_for_together(monkeypatch: pytest.MonkeyPatch, client: Client) -> None:
    # Mutation: close one after the other, or wait for room in a sink's queue and then as long again for its end.
    monkeypatch.setattr(sink_module, "_END_S", 3.0)
    sinks = [Slow() for _ in range(3)]
    threads = [InThread(sink) for sink in sinks]
    for step in range(20):
        for thread in threads:
            thread.take(moment(step))
    before, clock = time.monotonic(), Clock()
    Feeder(threads, OverviewReader(client.aside(), "none")).close()
    assert time.monotonic() - before > 2.9 and clock.seconds() < 5.7
    for sink in sinks:
        sink.allowed.set()


def test_a_sink_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sink_module, "_END_S", 0.1)
    sink = Slow()
    thread = InThread(sink)
    thread.take(moment(0))
    thread.close()
    assert "(Slow: too slow, did not end within 0 s)" in capsys.readouterr().out
    sink.allowed.set()
    wait_until(lambda: sink.closed, "the end of the thread")

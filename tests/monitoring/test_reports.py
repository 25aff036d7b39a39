"""Reports of processes: what they look like, what is refused, and that they neither end nor delay anybody."""

import json
import math
import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.reports import ReportStore
from rainbow_iqn_apex.monitoring import report
from rainbow_iqn_apex.monitoring.metrics import METRICS, MOST_TAGS, PRIORITY_BOUNDS
from rainbow_iqn_apex.monitoring.report import (
    MAX_BYTES,
    MAX_EVENTS,
    Event,
    EventLog,
    Reading,
    Report,
    Reporter,
    ReportError,
    decode,
    encode,
)
from rainbow_iqn_apex.monitoring.sinks.history import HistorySink, parse
from rainbow_iqn_apex.monitoring.sinks.sink import Feeder, Guarded, Moment, Sink
from tests.conftest import RedisServer
from tests.deadline import wait_until
from tests.monitoring.sinks.moments import NobodyElse, Taken

LONGEST = [f"train/{place:02}{chr(0x1F600) * 52}" for place in range(MOST_TAGS)]
BINS = [float(count) for count in range(len(PRIORITY_BOUNDS) + 1)]
REPORT = Report(
    "actor", 3, "host", 77, 1e9, 1e9 + 5, waits_for="the moon", values={"actor/steps": 12.0},
    histograms={"buffer/priorities": BINS}, events=(Event(1e9, "joined"), Event(1e9 + 1, "failed", is_alarm=True)),
)  # fmt: skip


def test_a_report_comes_out_as_it_went_in() -> None:
    assert decode(encode(REPORT)) == REPORT


def test_the_largest_report_is_small_enough() -> None:
    values = dict.fromkeys([*METRICS, *LONGEST], -1.2345678901234568e-300)
    events = tuple(Event(1e9 + 1 / 3, "\U0001f600" * 300) for _ in range(MAX_EVENTS + 5))
    report = replace(REPORT, values=values, events=events, waits_for="\\" * 400)
    assert len(encode(report)) <= MAX_BYTES
    assert len(decode(encode(report)).events) == MAX_EVENTS
    assert decode(encode(report)).values == values


def test_a_metric_that_is_not_finite_is_left_out() -> None:
    values = {"train/loss": math.nan, "train/value": math.inf, "actor/steps": 1.0}
    assert decode(encode(replace(REPORT, values=values))).values == {"actor/steps": 1.0}


def test_a_metric_without_a_name_in_the_list_is_an_error() -> None:
    with pytest.raises(ValueError, match="'actor/stops'"):
        encode(replace(REPORT, values={"actor/stops": 1.0}))
    with pytest.raises(ValueError, match="'actor/stops'"):
        REPORT.value("actor/stops")


def test_damaged_bytes_are_refused_or_give_a_report() -> None:
    rng, data, read, refused = random.Random(1), encode(REPORT), 0, 0
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            encode(decode(bytes(damaged)))
            read += 1
        except ReportError:
            refused += 1
    assert min(read, refused) > 20, "both happen"


def test_text_of_others_cannot_command_a_terminal() -> None:
    content = json.loads(encode(REPORT)) | {"host": "\x1b[2J", "events": [[1e9, "\x07bell", False]]}
    read = decode(json.dumps(content).encode())
    assert (read.host, read.events[0].text) == ("?[2J", "?bell")


def test_metrics_of_a_newer_release_are_left_out() -> None:
    content = json.loads(encode(REPORT))
    content["values"] |= {"share/of_the_future": 1.0, "train/a b": 1.0, "train/": 1.0, f"train/{'a' * 55}": 1.0}
    assert decode(json.dumps(content).encode()) == REPORT


def test_metrics_that_an_agent_names_are_as_many_as_it_may_have() -> None:
    content = json.loads(encode(REPORT))
    content["values"] |= dict.fromkeys([*LONGEST, "train/one_more"], 1.0)
    assert decode(json.dumps(content).encode()).values == REPORT.values | dict.fromkeys(LONGEST, 1.0)


# --- the thread that writes them ---


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "INTERVAL_S", 0.05)


def reports(client: Client, keys: Keys, actor: int | None = 3) -> list[Report]:
    with closing(ReportStore(client, keys)) as store:
        return [decode(raw.data) for raw in store.read([actor], MAX_BYTES).values()]


@pytest.mark.redis
def test_a_process_reports_until_it_leaves(client: Client, run_name: str) -> None:
    keys, events = Keys(run_name, "id"), EventLog()
    events.note("joined")
    steps = iter(range(10**6))
    reading = lambda: Reading({"actor/steps": float(next(steps))})  # noqa: E731
    with Reporter(ReportStore(client, keys), "actor", 3, reading, events):
        wait_until(lambda: bool(reports(client, keys)), "a report")
        first = reports(client, keys)[0]
        wait_until(lambda: reports(client, keys)[0].values["actor/steps"] > first.values["actor/steps"], "a report")
    (last,) = reports(client, keys)
    assert (first.ended, last.ended) == (False, True)
    assert last.events[0].text == "joined"
    assert last.values["process/memory"] > 10_000_000


@pytest.mark.redis
def test_a_restart_is_counted(client: Client, run_name: str) -> None:
    keys = Keys(run_name, "id")
    for _ in range(3):
        with Reporter(ReportStore(client, keys), "learner", 0, lambda: Reading({}), EventLog()):
            pass
    assert reports(client, keys, None)[0].values["process/restarts"] == 2


def test_nobody_waits_for_a_server_that_is_away(own_server: RedisServer, own_client: Client) -> None:
    keys, gathered = Keys("run", "id"), list[Report]()
    with Reporter(ReportStore(own_client, keys), "actor", 3, lambda: Reading({}), EventLog(), gathered.append):
        wait_until(lambda: bool(gathered), "a report")
        own_server.stop()
        seen = len(gathered)
        wait_until(lambda: len(gathered) > seen + 3, "a report")
        own_server.start()
        wait_until(lambda: bool(reports(own_client, keys)), "a report")
    assert reports(own_client, keys)[0].ended


def test_a_user_who_may_not_report_is_told_once(own_client: Client, capfd: pytest.CaptureFixture[str]) -> None:
    own_client.execute_command("ACL", "SETUSER", "default", "-set")
    store, gathered = ReportStore(own_client, Keys("run", "id")), list[Report]()
    with Reporter(store, "actor", 0, lambda: Reading({}), EventLog(), gathered.append):
        wait_until(lambda: len(gathered) > 3, "a report")
    assert capfd.readouterr().out.count("Redis takes no report") == 1


def test_a_user_who_may_not_read_reports_writes_them(own_client: Client) -> None:
    own_client.execute_command("ACL", "SETUSER", "default", "-getrange")
    with Reporter(ReportStore(own_client, Keys("run", "id")), "actor", 0, lambda: Reading({}), EventLog()):
        wait_until(lambda: own_client.exists(Keys("run", "id").report(0)), "a report")


@pytest.mark.redis
def test_a_fault_of_what_gathers_costs_a_report_and_a_line(
    client: Client, run_name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    # Mutation: let the error end the thread of reports.
    keys, calls = Keys(run_name, "id"), list[None]()

    def gather() -> Reading:
        calls.append(None)
        if len(calls) in (1, 3):
            raise ZeroDivisionError("no\nrate")
        return Reading({})

    with closing(ReportStore(client, keys)) as store, Reporter(store, "actor", 0, gather, EventLog()):
        wait_until(lambda: len(calls) > 4, "more reports")
    assert reports(client, keys, 0)[0].ended
    assert capfd.readouterr().out.count("a report failed (ZeroDivisionError: no rate)") == 1


# --- sinks ---


class FullDisk:
    is_live = False

    def take(self, moment: Moment) -> None:  # noqa: ARG002 - a sink's
        raise OSError(28, "No space left on device")

    def close(self) -> None:
        raise OSError(28, "No space left on device")


def moments(tmp_path: Path) -> list[Any]:
    return list(parse((tmp_path / "x.jsonl").read_bytes()))


def test_history_grows_more_slowly_in_a_long_run(tmp_path: Path) -> None:
    feeder = Feeder([HistorySink(tmp_path / "x.jsonl")], NobodyElse())
    for second in range(0, 100_000, 5):
        feeder.observe(replace(REPORT, role="learner", written=REPORT.began + second, events=()))
    at = [line.at - REPORT.began for line in moments(tmp_path)]
    assert at[:3] == [0, 10, 20]
    assert 45 <= at[-1] - at[-2] <= 51
    assert 4000 < len(at) < 6000


def test_history_goes_on_though_the_clock_is_set_back(tmp_path: Path) -> None:
    # Mutations: wait until the clock shows what it has shown; take events for old by their time.
    feeder = Feeder([HistorySink(tmp_path / "x.jsonl")], NobodyElse())
    for second in range(100):
        at = REPORT.began + 4000 + second - 3600 * (second >= 50)
        events = (Event(REPORT.began + 4010, "before"), *([Event(REPORT.began + 455, "after")] if second >= 55 else []))
        feeder.observe(replace(REPORT, role="learner", written=at, events=events))
    lines = moments(tmp_path)
    assert [line.at - REPORT.began for line in lines] == [4000, 4010, 4020, 4030, 4040, 451, 461, 471, 481, 491]
    assert [len(line.events) for line in lines] == [1, 0, 0, 0, 0, 0, 1, 0, 0, 0]


def test_a_line_that_cannot_be_written_loses_itself_alone(tmp_path: Path) -> None:
    # Mutations: leave its events out; write on behind the half of it.
    sink, place = HistorySink(tmp_path / "x.jsonl"), tmp_path / "x.jsonl"
    take = Guarded(sink).take
    first, alarm = Event(1.0, "begun"), Event(2.0, "ill", is_alarm=True)
    take(Moment(1.0, 10, {}, {}, (first,), (), {}))
    away = place.rename(tmp_path / "away")
    place.mkdir()
    take(Moment(2.0, 20, {}, {}, (alarm,), (), {}))
    place.rmdir()
    away.rename(place)
    with place.open("a") as file:
        file.write('{"at": 3.0, "step"')
    take(Moment(4.0, 40, {}, {}, (), (), {}))
    take(Moment(5.0, 50, {}, {}, (), (), {}))
    assert [(line.step, line.events) for line in moments(tmp_path)] == [(10, (first,)), (40, (alarm,)), (50, ())]


def fed(*sinks: Sink) -> NobodyElse:
    """Hand the sinks three moments, and return what was asked for the reports of others."""
    feeder = Feeder(sinks, nobody := NobodyElse())
    for second in (0, 10, 20):
        feeder.observe(replace(REPORT, written=REPORT.began + second))
    feeder.close()
    return nobody


def test_others_are_looked_for_where_a_live_sink_shows_them() -> None:
    assert fed(Taken()).reads == 0
    assert fed(Taken(), Taken(is_live=True)).reads == 3


def test_a_sink_that_fails_ends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fed(FullDisk(), HistorySink(tmp_path / "x.jsonl"))
    assert len(moments(tmp_path)) == 3
    assert capsys.readouterr().out.count("Metrics are not written (FullDisk: [Errno 28] No space") == 1


def test_torn_lines_are_left_out(tmp_path: Path) -> None:
    sink = HistorySink(tmp_path / "x.jsonl")
    for step in (1, 2):
        sink.take(Moment(1e9, step, {"train/loss": 1 / 3}, {}, (Event(1e9, "resumed"),)))
    data = (tmp_path / "x.jsonl").read_bytes()
    lines = list(parse(data[:-9] + b"\n[]\nnull\n" + data))
    assert [line.step for line in lines] == [1, 1, 2]
    assert lines[0].values == {"train/loss": 0.333333}
    assert lines[0].events == (Event(1e9, "resumed"),)

"""The page in a real browser: which run is which, what is hidden, what can be read, and where the focus stays."""

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.inference_servers import InferenceServers
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.record import Owner, RunStatus
from rainbow_iqn_apex.memory.broker.reports import ReportStore
from rainbow_iqn_apex.monitoring.metrics import PRIORITY_BOUNDS
from rainbow_iqn_apex.monitoring.report import Event, Report, encode
from rainbow_iqn_apex.saber.results.run_record import RunRecord, Start, write_record
from tests.browser import Browser, needs_browser
from tests.dashboard import PROBLEM, errors, moment, start
from tests.dashboard import write_run as write_files
from tests.deadline import wait_until
from tests.memory.links import write_run
from tests.processes import Processes
from tests.start_script import free_port

pytestmark = [pytest.mark.redis, needs_browser]


def text_of(element: str) -> str:
    return f"document.getElementById('{element}').textContent"


def wait_for_report(browser: Browser, store: ReportStore, number: int | None, report: Report, condition: str) -> None:
    """Report again and again until the page shows it: a process whose report is old counts as silent."""

    def shows_it() -> bool:
        store.write(number, encode(report))
        return bool(browser.value(condition))

    wait_until(shows_it, condition, 120)


def test_a_run_that_is_over_does_not_look_alive(
    browser: Browser, address: str, client: Client, run_name: str, tmp_path: Path
) -> None:
    # Mutation: show the remaining time of the last report whatever the record holds.
    values = {"time/remaining": 3240.0, "time/fps": 585.0}
    lost = Event(2.0, "lost the Redis server", True)
    learner = Report("learner", 0, "host", 7, 1.0, 3.0, values=values, events=(lost,))
    empty = {"buffer/priorities": [0.0] * (len(PRIORITY_BOUNDS) + 1)}
    with closing(ReportStore(client, Keys(run_name, "id"))) as store:
        browser.open(address)
        wait_for_report(browser, store, None, learner, f"{text_of('facts')}.includes('Remaining54 min')")
        assert "585 a second" in browser.value(text_of("facts"))
        assert not browser.value("document.getElementById('alerts').hidden")
        assert browser.value("!document.getElementById('view').hidden && document.getElementById('thoughts').hidden")
        owner = Owner.of(tmp_path / "results")
        write_run(client, run_name, RunStatus("id", "stopped", {"game": "pong"}, 0, 0, owner=owner), {})
        store.write(None, encode(replace(learner, histograms=empty)))
        browser.wait_for("document.getElementById('view').hidden")
        told = browser.value(text_of("facts"))
        assert "Remaining" not in told and "a second" not in told and "Agent steps" in told
        browser.wait_for("document.getElementById('priorities').parentElement.hidden")
        browser.wait_for("document.getElementById('alerts').hidden")
        assert lost.text in browser.value(text_of("events"))
        assert errors(browser, address) == []


def test_a_run_that_has_finished_is_shown_as_finished_without_a_server(
    browser: Browser, tmp_path: Path, processes: Processes
) -> None:
    # Mutations: the line about the server whatever the files hold; an empty table of processes.
    write_files(tmp_path, "pong", 40)
    server = f"redis://127.0.0.1:{free_port()}"
    _, address = start(processes, 0, tmp_path, "--redis-url", server)
    browser.open(address)
    browser.wait_for(f"{PROBLEM}.includes('no Redis server answers')")
    assert browser.value(text_of("run")) == ""
    settings = {"game": "pong", "env": "atari", "agent": "ppo", "T_max": 390}
    write_record(tmp_path / "pong.json", RunRecord("pong", 4, 390, (Start(settings, {}, ""),)))
    browser.wait_for(f"{text_of('run')}.startsWith('This run has finished')")
    assert browser.value(PROBLEM) == "" and browser.value(text_of("facts")).startswith("Agent steps390of 390")
    assert browser.value("!document.documentElement.classList.contains('stale')")
    for part in ("alerts", "processes", "view"):
        assert browser.value(f"document.getElementById('{part}').closest('section').hidden"), part
    assert errors(browser, address) == []


def test_an_inference_server_has_a_row_and_nothing_to_watch(
    browser: Browser, address: str, client: Client, run_name: str
) -> None:
    # Mutations: `working` in the place of what it does; offer it among the actors whose view may be watched.
    keys = Keys(run_name, "id", inference=True)
    values = {"inference/clients": 3.0, "inference/batch": 12.25, "inference/latency": 0.0031, "actor/version": 41.0}
    InferenceServers(client, run_name, "id", 1).enlist(2)
    with closing(ReportStore(client, keys)) as store:
        browser.open(address)
        server = Report("inference server", 2, "host", 9, 1.0, 3.0, values=values)
        row = "[...document.querySelectorAll('#processes tr')].at(-1)?.textContent"
        told = "inference server 23 actors ask, batches of 12.3, answers after 3.1 ms"
        wait_for_report(browser, store, 2, server, f"{row}?.includes('{told}')")
        assert "41" in browser.value(row)
        assert "server" not in browser.value(text_of("watched"))
        assert errors(browser, address) == []


def test_a_curve_of_one_point_is_seen_and_empty_choices_are_not(
    browser: Browser, redis_port: int, run_name: str, tmp_path: Path, processes: Processes
) -> None:
    # Mutation: count the points of the axis, or offer known scores that there are not.
    write_files(tmp_path, "CartPole-v1", 1)
    (tmp_path / "CartPole-v1_metrics.jsonl").write_text(moment(0, 0) + moment(60, 10, train__loss=0.5))
    _, address = start(processes, redis_port, tmp_path, "--run-name", run_name)
    browser.open(address)
    browser.wait_for("document.querySelectorAll('#loss .scatterlayer .point').length === 1")
    browser.wait_for("document.querySelectorAll('#scores .scatterlayer .point').length > 0")
    for choices in ("lines", "other-runs"):
        assert browser.value(f"document.getElementById('{choices}').closest('details').hidden"), choices
    assert errors(browser, address) == []


@pytest.mark.slow
def test_a_page_of_a_dashboard_that_was_started_again_tells_what_to_do(
    browser: Browser, redis_port: int, run_name: str, tmp_path: Path, processes: Processes
) -> None:
    open_to_all = ["--host", "0.0.0.0", "--port", str(port := free_port()), "--run-name", run_name]
    dashboard, address = start(processes, redis_port, tmp_path, *open_to_all)
    browser.open(f"http://127.0.0.1:{port}/?{urlsplit(address).query}")
    browser.wait_for("document.getElementById('title').textContent === 'No run yet'")
    dashboard.terminate()
    dashboard.finish()
    start(processes, redis_port, tmp_path, *open_to_all)
    browser.wait_for(f"{PROBLEM}.includes('Open the address that dashboard.py has printed anew')")


@pytest.mark.slow
def test_files_of_another_run_are_told_apart_from_the_run_on_the_server(
    browser: Browser, address: str, run_name: str
) -> None:
    # Mutation: show the score of the files that are chosen among the figures of the run.
    browser.open(address)
    browser.wait_for(f"{text_of('facts')}.includes('Score in training')")
    assert browser.value(text_of("mixed")) == ""
    select = "document.getElementById('shown-run')"
    for chosen, heading in (("other/pong", "Scores of other/pong"), ("", "Scores")):
        browser.value(f"{select}.value = '{chosen}'; {select}.dispatchEvent(new Event('change'))")
        browser.wait_for(f"{text_of('scores-title')} === '{heading}'")
        assert browser.value(f"{text_of('facts')}.includes('Score in training')") == (chosen == "")
        assert browser.value(text_of("title")).startswith("Pong · ")
        hidden = browser.value("document.getElementById('priorities').parentElement.hidden")
        assert hidden == (chosen != ""), "these are the run's, not of the files"
        told = f"What stands under Scores and Learning is of other/pong, all else of run {run_name}."
        assert browser.value(text_of("mixed")) == (told if chosen else "")
        assert browser.value(text_of("progress-title")) == (f"Progress of run {run_name}" if chosen else "Progress")
    assert errors(browser, address) == []


@pytest.mark.slow
def test_as_many_runs_are_compared_as_there_are_colours(
    browser: Browser, redis_port: int, run_name: str, tmp_path: Path, processes: Processes
) -> None:
    # Mutation: draw the shown run's bounds, too, or begin with another run's colour.
    for name in "abcdefghij":
        write_files(tmp_path / name, "pong", 5)
    _, address = start(processes, redis_port, tmp_path, "--run-name", run_name)
    browser.open(address)
    browser.wait_for("document.querySelectorAll('#other-runs input').length === 9")
    browser.value("document.querySelectorAll('#other-runs input').forEach(box => box.click())")
    browser.wait_for(f"{text_of('scores-text')}.endsWith('as there are too many: 2.')")
    colours = "document.getElementById('scores').data.filter(t => t.line?.width === 2.5).map(t => t.line.color)"
    assert len(set(browser.value(colours))) == 8
    assert errors(browser, address) == []


@pytest.mark.slow
def test_the_focus_and_the_shown_run_stay_while_others_train(
    browser: Browser, redis_port: int, run_name: str, tmp_path: Path, processes: Processes
) -> None:
    # Mutation: order the runs by time, or make all boxes anew when there is one more.
    for number, name in enumerate("cab"):
        write_files(tmp_path / name, "pong", 5)
        os.utime(tmp_path / name / "pong.csv", (1e9 - number, 1e9 - number))
    _, address = start(processes, redis_port, tmp_path, "--run-name", run_name)
    browser.open(address)
    browser.wait_for(f"{text_of('scores-text')}.startsWith('c/pong: mean')")
    browser.value("document.getElementById('other-runs').parentElement.open = true")
    browser.value("document.querySelector('input[value=\"b/pong\"]').focus()")
    browser.value("window.option = document.querySelector('#shown-run option[value=\"b/pong\"]')")
    write_files(tmp_path / "b", "pong", 6)
    write_files(tmp_path / "aa", "pong", 6)
    browser.wait_for("document.querySelectorAll('#other-runs input').length === 3")
    assert browser.value("document.activeElement.value") == "b/pong"
    assert browser.value("window.option.isConnected"), "a list that is open would be closed"
    order = "[...document.querySelectorAll('#shown-run option')].map(e => e.value)"
    assert browser.value(order) == ["", "a/pong", "aa/pong", "b/pong", "c/pong"]
    assert browser.value(f"{text_of('scores-text')}.startsWith('c/pong: mean')")
    assert errors(browser, address) == []

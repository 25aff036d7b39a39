"""A dashboard for the tests: the real program, what it answers, and the files that it reads."""

import json
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.record import Owner, RunStatus
from rainbow_iqn_apex.memory.broker.reports import ReportStore
from rainbow_iqn_apex.monitoring.metrics import METRICS, PRIORITY_BOUNDS
from rainbow_iqn_apex.monitoring.report import Event, Report, encode
from rainbow_iqn_apex.saber.results.training_log import HEADER, format_line
from tests.browser import Browser
from tests.memory.links import write_run as write_record
from tests.processes import Process, Processes


def start(processes: Processes, port: int, folder: Path, *words: str, **options: Any) -> tuple[Process, str]:
    """Start a dashboard on a free port; return it with its address."""
    where = ["--port-redis", port] if port else []
    process = processes.start("dashboard.py", *where, "--path-to-results", folder, "--port", 0, *words, **options)
    process.wait_for("Dashboard: http")
    return process, process.output.partition("Dashboard: ")[2].split()[0]


def ask(address: str, path: str = "api/now", **headers: str) -> Any:
    """Return what the dashboard answers, from JSON."""
    request = urllib.request.Request(address + path, headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def episodes(count: int, score: float = 3.0, first: int = 0) -> str:
    """Return lines of a training log."""
    records = (
        EpisodeRecord(T_actors=10 * i, episode=i, score_saber=score, end="game_over") for i in range(first, count)
    )
    return "".join(map(format_line, records))


def write_run(folder: Path, task: str, count: int, score: float = 3.0) -> None:
    """Write a training log of so many episodes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{task}.csv").write_text(f"{HEADER}\n{episodes(count, score)}")


def moment(at: float, step: int, **values: float) -> str:
    """Return a line of a history; in the names of values two underscores stand for a slash."""
    named = {name.replace("__", "/"): value for name, value in values.items()}
    return json.dumps({"at": at, "step": step, "values": named, "events": []}) + "\n"


EVIL = '<img src=x onerror="document.title=1">'
PROBLEM = "document.getElementById('problem').textContent"


def errors(browser: Browser, address: str) -> list[str]:
    """What has gone wrong on the page, and requests to anybody but the dashboard."""
    return [error for error in browser.errors if f"asks the network for {address}" not in error]


@pytest.fixture
def address(client: Client, redis_port: int, run_name: str, tmp_path: Path, processes: Processes) -> Iterator[str]:
    """Of a dashboard of a run that nobody plays, whose files and reports have everything that can be shown."""
    folder = tmp_path / "results"
    write_run(folder, "pong", 40)
    write_run(folder / "other", "pong", 60, score=12.0)
    names = [name for name in METRICS if not name.startswith(("actor", "buffer/priorities"))]
    names.append(f"train/{EVIL.replace(' ', '_')}")  # as an agent has named it
    values = dict.fromkeys(names, 0.25)
    lines = (moment(60 * i, 10 * i, **{name.replace("/", "__"): i / 10 for name in names}) for i in range(40))
    (folder / "pong_metrics.jsonl").write_text("".join(lines))
    settings = {"game": "pong", "env": "atari", "agent": EVIL, "nb_actor": 2, "T_max": 1000}
    write_record(client, run_name, RunStatus("id", "running", settings, 0, 0, owner=Owner.of(folder), written=5), {})
    priorities = {"buffer/priorities": [float(i % 7) for i in range(len(PRIORITY_BOUNDS) + 1)]}
    learner = Report("learner", 0, EVIL, 7, 1.0, 90.0, False, EVIL, values, priorities, (Event(3.0, EVIL, True),))
    actor = Report("actor", 1, "host", 8, 1.0, 90.0, values={"share/act": 0.6, "share/wait": 0.4, "actor/steps": 5.0})
    with closing(ReportStore(client, Keys(run_name, "id"))) as store:
        store.write(None, encode(learner))
        store.write(1, encode(actor))
        yield start(processes, redis_port, folder, "--run-name", run_name)[1]

"""A dashboard for the tests: the real program, what it answers, and the files that it reads."""

import importlib.util
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from saber.results.training_log import HEADER, format_record
from saber.scores import EpisodeRecord
from tests.processes import Process, Processes

needs_dashboard = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("starlette", "uvicorn"))),
    reason="needs an extra: pip install -r requirements-extra.txt",
)


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
    return "".join(map(format_record, records))


def write_run(folder: Path, task: str, count: int, score: float = 3.0) -> None:
    """Write a training log of so many episodes."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{task}.csv").write_text(f"{HEADER}\n{episodes(count, score)}")


def moment(at: float, step: int, **values: float) -> str:
    """Return a line of a history; in the names of values two underscores stand for a slash."""
    named = {name.replace("__", "/"): value for name, value in values.items()}
    return json.dumps({"at": at, "step": step, "values": named, "events": []}) + "\n"

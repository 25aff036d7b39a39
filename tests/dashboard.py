"""A dashboard for the tests: the real program, and what it answers."""

import importlib.util
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

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

"""Which run the dashboard looks at, and what it holds of it, when several runs and faults come and go."""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memory.broker.access import OPEN, Server
from memory.broker.connection import Client
from memory.broker.run_status import Owner, RunStatus, write_run
from memory.broker.views import ViewListener
from monitoring.overview import OverviewReader
from programs.dashboard import watcher as watching
from programs.dashboard.views import Views
from programs.dashboard.watcher import Watcher
from tests.deadline import wait_until

pytestmark = pytest.mark.redis


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look and choose without a pause."""
    monkeypatch.setattr(watching, "_INTERVAL_S", 0.02)
    monkeypatch.setattr(watching, "_CHOICE_S", 0.0)


@pytest.fixture
def server(redis_port: int) -> Server:
    return Server("localhost", redis_port, OPEN)


def write(client: Client, name: str, folder: Path, written: int, status: str = "running") -> None:
    settings = {"game": "pong", "env": "atari", "nb_actor": 1}
    record = RunStatus(f"id-of-{name}", status, settings, 0, 0, owner=Owner.of(folder), written=written)
    write_run(client, name, record, {})


def shown(watcher: Watcher) -> str:
    overview = watcher.look.overview
    return overview.name if overview else ""


def failing(times: int, then: Callable[..., Any]) -> Callable[..., Any]:
    """A method that raises what nobody foresees so many times."""
    left = [LookupError("unforeseen")] * times

    def method(*arguments: Any) -> Any:
        if left:
            raise left.pop()
        return then(*arguments)

    return method


def test_a_fault_that_nobody_foresaw_is_shown_and_looking_goes_on(
    client: Client, server: Server, run_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(client, run_name, tmp_path, 1)
    monkeypatch.setattr(OverviewReader, "read", failing(10, OverviewReader.read))
    with Watcher(server, run_name, tmp_path) as watcher:
        wait_until(lambda: "LookupError: unforeseen" in watcher.look.problem, "the fault")
        wait_until(lambda: not watcher.look.problem, "a look")
        assert shown(watcher) == run_name


def test_a_fault_among_views_is_shown_and_listening_goes_on(
    client: Client, server: Server, run_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(client, run_name, tmp_path, 1)
    monkeypatch.setattr(ViewListener, "next", failing(1, ViewListener.next))
    with Watcher(server, run_name, tmp_path) as watcher, Views(watcher) as views:

        def problem() -> str:
            return str(views.ask(0, evaluation=False)["problem"])

        wait_until(lambda: "LookupError: unforeseen" in problem(), "the fault")
        wait_until(lambda: not problem(), "the end of it")

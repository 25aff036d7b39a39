"""Which run the dashboard looks at, and what it holds of it, when several runs and faults come and go."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rainbow_iqn_apex.memory.broker.access import OPEN, Server
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.record import Owner, RunStatus
from rainbow_iqn_apex.memory.broker.reports import ViewListener
from rainbow_iqn_apex.monitoring.overview import OverviewReader
from rainbow_iqn_apex.programs.dashboard import watcher as watching
from rainbow_iqn_apex.programs.dashboard.watcher import Watcher
from tests.deadline import wait_until
from tests.memory.links import write_run

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
    overview = watcher.last.overview
    return overview.name if overview else ""


def wait_for_a_look(watcher: Watcher) -> None:
    before = watcher.last.at
    wait_until(lambda: watcher.last.at > before, "a look")


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
        wait_until(lambda: "LookupError: unforeseen" in watcher.last.problem, "the fault")
        wait_until(lambda: not watcher.last.problem, "a look")
        assert shown(watcher) == run_name


def test_a_fault_among_views_is_shown_and_listening_goes_on(
    client: Client, server: Server, run_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(client, run_name, tmp_path, 1)
    monkeypatch.setattr(ViewListener, "next", failing(1, ViewListener.next))
    with Watcher(server, run_name, tmp_path) as watcher:

        def problem() -> str:
            return str(watcher.views.ask(watcher.last.overview, 0, evaluation=False)["problem"])

        wait_until(lambda: "LookupError: unforeseen" in problem(), "the fault")
        wait_until(lambda: not problem(), "the end of it")


def test_of_two_runs_that_go_on_one_is_kept(client: Client, server: Server, run_name: str, tmp_path: Path) -> None:
    # Mutation: choose by the time of writing alone.
    names = [f"{run_name}-{letter}" for letter in "ab"]
    seen = set()
    write(client, names[0], tmp_path / "a", 1)
    with Watcher(server, "", tmp_path) as watcher:
        for written in range(2, 12):
            write(client, names[written % 2], tmp_path / "ab"[written % 2], written)
            wait_for_a_look(watcher)
            seen.add(shown(watcher))
        assert seen == {names[0]}
        assert [event for event in watcher.happenings.newest() if "another run" in event.text] == []


def test_a_run_that_is_over_gives_way_and_its_events_go_with_it(
    client: Client, server: Server, run_name: str, tmp_path: Path
) -> None:
    # Mutation: keep the events at a change of the name.
    one, other = f"{run_name}-one", f"{run_name}-other"
    write(client, one, tmp_path, 1)
    with Watcher(server, "", tmp_path) as watcher:
        wait_until(lambda: shown(watcher) == one, "the first run")
        watcher.happenings.note("of the first run")
        write(client, other, tmp_path / "below", 2)
        write(client, one, tmp_path, 1, status="finished")
        wait_until(lambda: shown(watcher) == other, "the second run")
        assert watcher.happenings.newest() == []


def test_a_run_in_a_folder_below_is_preferred_to_many_newer_ones_elsewhere(
    client: Client, server: Server, run_name: str, tmp_path: Path
) -> None:
    # Mutations: compare the folders for equality; look at the first 100 names.
    for number in range(120):
        write(client, f"{run_name}-{number:03}", tmp_path / "results-of-others", 2**31)
    write(client, f"{run_name}-own", tmp_path / "results" / "x" / "y", 1)
    with Watcher(server, "", tmp_path / "results") as watcher:
        wait_until(lambda: shown(watcher) != "", "a run")
        assert shown(watcher) == f"{run_name}-own"

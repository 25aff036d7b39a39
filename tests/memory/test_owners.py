"""Whose run it is that a name stands for on the server, and who may take its place."""

import time
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path

import pytest

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.leases import this_host
from rainbow_iqn_apex.memory.broker.record import RunStatus, read_run
from tests.memory.links import write_run

pytestmark = pytest.mark.redis
SETTINGS = {"seed": 1}


def leave_a_run(client: Client, name: str, folder: Path, status: str = "stopped") -> None:
    """A run of this folder with some experience, under the run id "first"."""
    with LearnerClient(client, name, SETTINGS, 1, folder=folder) as learner:
        learner.lead("first", afresh=True)
        learner.write_progress(status, 8, 9, {0: 1})
        client.xadd(learner.keys.log(0), {"m": b""}, id="1-0")


def lead(client: Client, name: str, folder: Path, run_id: str = "second", *, abandon_other: bool = False) -> None:
    """Begin a run afresh, or resume the first, as the learner's program does."""
    afresh = run_id == "second"
    with LearnerClient(client, name, SETTINGS, 1, folder=folder, abandon_other=abandon_other) as link:
        link.check_name(run_id, afresh=afresh)
        link.lead(run_id, afresh=afresh)


def is_there(client: Client, name: str) -> bool:
    record = read_run(client, name)
    assert record and (record.run_id == "first") == client.exists(Keys(name, "first").log(0))
    return record.run_id == "first"


@pytest.mark.parametrize("status", ["starting", "running", "stopped"])
def test_another_folder_s_run_is_kept(client: Client, run_name: str, tmp_path: Path, status: str) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    begun = int(time.time())
    leave_a_run(client, run_name, first, status)
    with pytest.raises(UserError) as caught:
        lead(client, run_name, second)
    said = str(caught.value)
    assert said.startswith(f"--run-name: run {run_name!r} on the Redis server is another one than that of {second} on ")
    assert f"results are in {first} on {this_host()}, last written " in said
    written = datetime.fromisoformat(said.partition("last written ")[2].partition(";")[0]).timestamp()
    assert begun <= written <= time.time()
    assert "--abandon-other-run" in said and "\n" not in said
    assert is_there(client, run_name)


def test_another_folder_s_run_is_abandoned_on_request(
    client: Client, run_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_a_run(client, run_name, tmp_path / "first")
    lead(client, run_name, tmp_path / "second", abandon_other=True)
    assert not is_there(client, run_name)
    assert (
        f"Deleting the experience of the other run {run_name!r}, of {tmp_path / 'first'} on" in capsys.readouterr().out
    )
    # The first one, resumed, would now delete the second's: it is told whose that is.
    with pytest.raises(UserError, match=f"results are in {tmp_path / 'second'} on "):
        lead(client, run_name, tmp_path / "first", "first")


@pytest.mark.parametrize(
    ("status", "folder", "run_id", "host", "told"),
    [
        ("stopped", "first", "first", "", ""),
        ("stopped", "moved", "first", "", ""),  # a run may be resumed wherever its folder is now
        ("stopped", "link", "second", "", ""),  # who has moved the results away starts afresh
        ("stopped", "first", "older", "", "--abandon-other-run"),  # results that are moved back are no fresh start
        ("stopped", "first", "second", "elsewhere", r"results are in \S+/first on elsewhere, last written"),
        ("finished", "second", "second", "", ""),  # a finished run is in nobody's way
    ],
)
def test_who_may_take_the_place_of_a_run(
    client: Client, run_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, folder: str,
    run_id: str, host: str, told: str,
) -> None:  # fmt: skip
    leave_a_run(client, run_name, tmp_path / "first", status)
    if host:
        client.hset(Keys(run_name, "").run, "host", host)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("first")
    with pytest.raises(UserError, match=told) if told else nullcontext():
        lead(client, run_name, Path(folder), run_id)
    assert is_there(client, run_name) == (run_id == "first" or bool(told))


@pytest.mark.parametrize("version", [wire.VERSION - 1, wire.VERSION])
def test_a_record_that_names_no_owner_is_kept(client: Client, run_name: str, tmp_path: Path, version: int) -> None:
    """Whose it is cannot be known, so it is kept; its own folder resumes it."""
    write_run(client, run_name, RunStatus("first", "stopped", SETTINGS, 3, 4, wire_version=version), {})
    client.xadd(Keys(run_name, "first").log(0), {"m": b""}, id="1-0")
    with pytest.raises(UserError, match="results are in a folder that is not recorded; name this run"):
        lead(client, run_name, tmp_path)
    assert is_there(client, run_name)
    if version == wire.VERSION:
        lead(client, run_name, tmp_path, "first")
        record = read_run(client, run_name)
        assert record and record.owner and record.owner.folder == str(tmp_path)
    lead(client, run_name, tmp_path, abandon_other=True)
    assert not is_there(client, run_name)


def test_a_strange_folder_comes_back_and_is_shown_harmlessly(client: Client, run_name: str, tmp_path: Path) -> None:
    folder = tmp_path / "a\x1b[31m \n ä \udcff"
    leave_a_run(client, run_name, folder)
    lead(client, run_name, folder)
    assert not is_there(client, run_name)
    record = read_run(client, run_name)
    assert record and record.whose.startswith(f"{tmp_path}/a?[31m ? ä ? on ")

"""What somebody else has put into a results folder: no reader leaves the folder, waits for a pipe or reads a device."""

import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.files import lock_file, open_own, open_regular, read_regular
from rainbow_iqn_apex.environments.scores import VersionedRecord
from rainbow_iqn_apex.monitoring.sinks.videos import read_shown
from rainbow_iqn_apex.monitoring.video import FilmInfo
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.dashboard.results import Results
from rainbow_iqn_apex.programs.evaluation.card import check_folder
from rainbow_iqn_apex.programs.evaluation.settings import load_model
from rainbow_iqn_apex.programs.learner.checkpointer import newest_whole
from rainbow_iqn_apex.programs.sweep.plan import Run, State
from rainbow_iqn_apex.saber.report.inputs import TABLES, read_inputs
from rainbow_iqn_apex.saber.report.program import write_report
from rainbow_iqn_apex.saber.results.evaluation_log import (
    EvaluatedEpisode,
    read_evaluation,
    read_evaluation_record,
    write_evaluation,
)
from rainbow_iqn_apex.saber.results.run_record import read_record
from rainbow_iqn_apex.saber.results.training_log import EvaluationScores, TrainingLog, read_records
from tests.agents.test_published_snapshots import published, saved
from tests.dashboard import moment
from tests.ground_truth.published_network import snapshot_of
from tests.saber.report.logs import write_log, write_settings
from tests.saber.results.test_evaluation_log import RECORD, episode

VIDEO = b"\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01\x42\x82\x84webm" + b"\0" * 50
INFO = FilmInfo(3.0, 1.5e9, 15.0, 10, 1, 0, 0, 1, 9, 105, 80)


def _run(folder: Path) -> Run:
    return Run("pong", 0, folder, (), options.parse(["--game", "pong"], "test", ""))


def _dashboard(part: Callable[[Results], Any]) -> Callable[[Path], object]:
    return lambda folder: part(Results(folder))


def _report(folder: Path) -> object:
    found = read_inputs([folder])
    return found.runs and all(run.record for run in found.runs) and found.evaluations


# By name: the file, and what reads it, which is empty where it reads nothing.
READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "training log": ("pong.csv", lambda folder: read_records(folder / "pong.csv")),
    "learner's training log": ("pong.csv", lambda folder: TrainingLog(folder / "pong.csv").records),
    "learner's evaluation log": (
        "pong_evaluation.csv",
        lambda folder: EvaluationScores(folder / "pong_evaluation.csv").records,
    ),
    "run record": ("pong.json", lambda folder: read_record(folder / "pong.json")),
    "evaluation": ("x_seed7.csv", lambda folder: read_evaluation(folder / "x_seed7.csv")),
    "evaluation's record": ("x_seed7.json", lambda folder: read_evaluation_record(folder / "x_seed7.json")),
    "what videos show": ("pong_films.json", lambda folder: read_shown(folder, "pong").run_id),
    "checkpoint": ("last_model_pong_7.pth", lambda folder: newest_whole(folder, "pong")),
    "model of a folder": (
        "last_model_pong_7.pth",
        lambda folder: load_model(options.parse(["--game", "pong", "--model", str(folder)], "test", "")),
    ),
    "sweep's state": ("sweep.json", lambda folder: _run(folder).state()),
    "sweep's record of a run": ("pong.json", lambda folder: _run(folder).other_settings()),
    "model card": ("README.md", lambda folder: _is_card(folder)),
    "report's log": ("pong.csv", _report),
    "report's record": ("pong.json", _report),
    "report's evaluation": ("x_seed7.csv", _report),
    "report's record of an evaluation": ("x_seed7.json", _report),
    "dashboard's search": ("pong.csv", _dashboard(Results.titles)),
    "dashboard's record": ("pong.json", _dashboard(lambda results: results.facts("pong")["agent"])),
    "dashboard's evaluations": (
        "pong_evaluation.csv",
        _dashboard(lambda results: results.scores(["pong"])["runs"][0]["evaluation"]["steps"]),
    ),
    "dashboard's history": (
        "pong_metrics.jsonl",
        _dashboard(lambda results: results.metrics("pong", ["train/loss"])["steps"]),
    ),
    "dashboard's list of videos": ("pong_films.json", _dashboard(lambda results: results.films("pong"))),
    "dashboard's video": ("pong_best_evaluation.webm", _dashboard(lambda results: results.film("pong", "best"))),
}


def _is_card(folder: Path) -> bool:
    with suppress(UserError):
        check_folder(folder)
        return True
    return False


def write_folder(folder: Path) -> None:
    """Write all the files that the readers know, each with something in it."""
    log = write_log(folder, "pong", [10, 20], [1.0, 2.0])
    write_settings(log, 20, {"agent": "rainbow_iqn", "preset": "paper", "hidden_size": 5})
    EvaluationScores(folder / "pong_evaluation.csv").append([VersionedRecord(score_saber=7.0, end="stuck")])
    write_evaluation(folder / "x_seed7.csv", replace(RECORD, episodes=1), [EvaluatedEpisode(1000, episode(0))])
    (folder / "pong_metrics.jsonl").write_text(moment(0, 10, train__loss=1.0))
    (folder / "pong_films.json").write_text(json.dumps({"run": "a", "best": asdict(INFO)}))
    (folder / "pong_best_evaluation.webm").write_bytes(VIDEO)
    saved(folder / "last_model_pong_7.pth", snapshot_of(published("rainbow_iqn")))
    _run(folder).write(State(6379, 0))
    (folder / "README.md").write_text("---\nlibrary_name: rainbow-iqn-apex\n---\n")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "results"
    path.mkdir()
    write_folder(path)
    yield path


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))  # the name of a socket has 107 bytes at most


def _link_to_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    path.symlink_to("pipe")


HOSTILE: dict[str, Callable[[Path], object]] = {  # given the path in the folder, and the file's content elsewhere
    "link out": lambda path: path.symlink_to(path.parent.parent / "secret"),
    "link to a link out": lambda path: path.symlink_to(path.parent / "other"),
    "pipe": os.mkfifo,
    "link to a pipe": _link_to_pipe,
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
    "folder": lambda path: path.mkdir(),
    "link to a folder": lambda path: path.symlink_to("."),
    "link to itself": lambda path: path.symlink_to(path.name),
    "socket": _socket,
}


def _read(reader: Callable[[Path], object], folder: Path) -> object:
    try:
        return reader(folder)
    except (OSError, ValueError, UserError) as error:
        assert len(str(error).splitlines()) == 1
        return None


@pytest.mark.parametrize("name", READERS)
def test_every_reader_opens_regular_files_within_the_folder_alone(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: any reader by `path.read_bytes()`, or `open_regular` without one of its looks.
    monkeypatch.chdir(folder)
    file, reader = READERS[name]
    path, secret = folder / file, folder.parent / "secret"
    assert _read(reader, folder), "a file"
    path.rename(folder / "real")
    path.symlink_to("real")
    assert _read(reader, folder), "a link within the folder"
    path.unlink()
    (folder / "real").rename(secret)
    (folder / "other").symlink_to(secret)
    for kind, make in HOSTILE.items():
        make(path)
        before = os.lstat(path)
        assert not _read(reader, folder), kind
        assert os.path.samestat(before, os.lstat(path)), f"{kind} was replaced"
        path.rmdir() if kind == "folder" else path.unlink()


# The dashboard reads the beginning of a long log (tests/programs/test_dashboard_files.py); a snapshot may be as large.
IN_PARTS = {"dashboard's search", "dashboard's evaluations", "dashboard's history", "checkpoint", "model of a folder"}


@pytest.mark.parametrize("name", sorted(READERS.keys() - IN_PARTS))
def test_no_reader_takes_a_file_without_end(folder: Path, name: str) -> None:
    # Mutation: no look at the size.
    file, reader = READERS[name]
    with (folder / file).open("r+b") as opened:
        opened.truncate((1 << 30) + 1)  # a hole
    assert not _read(reader, folder)


def test_a_link_that_the_user_names_is_followed_to_a_file_alone(folder: Path) -> None:
    (folder.parent / "links").mkdir()
    link = folder.parent / "links" / "newest.pth"
    link.symlink_to(folder / "last_model_pong_7.pth")
    assert snapshot.load(link, "--model")
    assert load_model(options.parse(["--game", "pong", "--model", str(link)], "test", ""))
    link.unlink()
    link.symlink_to("/dev/zero")
    with pytest.raises(UserError, match="it is no regular file"):
        snapshot.load(link, "--model")


def test_a_folder_that_becomes_a_link_meanwhile_is_not_left(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: open the resolved path at once.
    (folder / "seed1").mkdir()
    (folder / "seed1" / "x").touch()
    (folder.parent / "x").write_text("secret")
    resolve = os.path.realpath

    def exchanged(path: Path, *, strict: bool) -> str:
        found = resolve(path, strict=strict)
        if path == folder:
            (folder / "seed1").rename(folder / "seed2")
            (folder / "seed1").symlink_to("..")
        return found

    monkeypatch.setattr("os.path.realpath", exchanged)
    with pytest.raises(NotADirectoryError):
        open_regular(folder / "seed1" / "x", folder)


def test_what_we_write_follows_no_link_and_waits_for_no_reader(tmp_path: Path) -> None:
    # Mutation: `path.open("w")`, which empties what the link leads to.
    (tmp_path / "private").write_text("kept")
    (tmp_path / "link").symlink_to("private")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(OSError):
            open_own(tmp_path / name, "ab")
        with pytest.raises(OSError):
            lock_file(tmp_path / name)
    assert (tmp_path / "private").read_text() == "kept"
    with lock_file(tmp_path / "lock"), pytest.raises(BlockingIOError):
        lock_file(tmp_path / "lock")
    assert read_regular(tmp_path / "lock", tmp_path) == b""


def test_a_video_is_no_other_file(folder: Path) -> None:
    # Mutation: serve what has the name of a video.
    assert Results(folder).film("pong", "best") == VIDEO
    for content in (b"root:x:0:0", b"", VIDEO[1:], VIDEO.replace(b"webm", b"text")):
        (folder / "pong_best_evaluation.webm").write_bytes(content)
        assert Results(folder).film("pong", "best") == b""


def test_a_report_deletes_nothing_behind_a_link(folder: Path) -> None:
    # Mutation: go on where the folder of the tables is a link.
    private = folder.parent / "private"
    private.mkdir()
    (private / "accounts.csv").touch()
    (folder / TABLES).symlink_to(private)
    with pytest.raises(UserError, match=f"--output: {folder / TABLES} is a link"):
        write_report([folder], folder)
    assert (private / "accounts.csv").exists()


def test_no_snapshot_outside_the_folder_is_proposed(folder: Path) -> None:
    # Mutation: look behind links.
    empty = folder.parent / "empty"
    empty.mkdir()
    (empty / "out").symlink_to(folder)
    with pytest.raises(UserError) as caught:
        snapshot.choose(empty, "pong")
    assert "there are snapshots" not in str(caught.value)

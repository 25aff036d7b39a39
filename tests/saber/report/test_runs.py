"""Which logs are runs, and which are the same run."""

import errno
import os
import shutil
from pathlib import Path

import pytest

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.environments.scores import VersionedRecord
from rainbow_iqn_apex.saber.report.inputs import TABLES, Label, read_inputs
from rainbow_iqn_apex.saber.report.results import group_runs
from rainbow_iqn_apex.saber.results.run_record import RunRecord, Start, present_start, read_record, write_record
from rainbow_iqn_apex.saber.results.training_log import HEADER, EvaluationScores
from tests.saber.report.logs import write_log, write_run, write_settings


def test_folders_are_searched_and_no_file_is_read_twice(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a" / "deep", "pong", 1, 5000)
    second = write_run(tmp_path / "b", "pong", 2, 4000)
    third = write_run(tmp_path / "b", "alien", 2, 4000)
    (tmp_path / "b" / "other.csv").write_text("seed,score\n1,2\n")
    inputs = read_inputs([tmp_path, second, tmp_path / "b" / ".." / "b"])
    assert [(run.task.name, run.path) for run in inputs.runs] == [("alien", third), ("pong", first), ("pong", second)]
    assert [run.settings["seed"] for run in inputs.runs] == [2, 1, 2]
    assert inputs.left_out == [f"{tmp_path}/b/other.csv: not a training log"]


def test_a_copy_is_no_second_run(tmp_path: Path) -> None:
    # Mutation: keep the shorter.
    path = write_run(tmp_path / "a", "pong", 1, 5000)
    shutil.copytree(tmp_path / "a", tmp_path / "older")
    lines = path.read_text().splitlines(keepends=True)
    (tmp_path / "older" / "pong.csv").write_text("".join(lines[:50]))
    inputs = read_inputs([tmp_path])
    assert [run.path for run in inputs.runs] == [path]
    assert inputs.left_out == [f"{tmp_path / 'older' / 'pong.csv'}: begins with the same episodes as {path}"]


def test_a_copy_without_its_record_stands_back(tmp_path: Path) -> None:
    # Mutation: the first of equally long logs, whose protocol, seed and length nobody knows.
    path = write_run(tmp_path / "orig", "pong", 1, 5000)
    (tmp_path / "backup").mkdir()
    shutil.copy(path, tmp_path / "backup")
    (run,) = read_inputs([tmp_path]).runs
    assert run.path == path and run.record


def test_what_went_on_from_a_copy_is_no_second_run(tmp_path: Path) -> None:
    # Mutation: compare all episodes of the shorter one.
    scores = list(range(300))
    write_log(tmp_path / "a", "pong", list(range(1, 301)), scores)
    write_log(tmp_path / "b", "pong", list(range(1, 301)), scores[:199] + [-1] * 101)
    write_log(tmp_path / "c", "pong", list(range(1, 301)), [7, *scores[1:]])
    inputs = read_inputs([tmp_path])
    assert [run.path.parent.name for run in inputs.runs] == ["a", "c"]
    assert inputs.left_out == [f"{tmp_path}/b/pong.csv: begins with the same episodes as {tmp_path}/a/pong.csv"]


def test_equal_beginnings_of_other_settings_are_no_copies(tmp_path: Path) -> None:
    # Before they learn, runs of one seed play alike, whatever their learning rates are.
    write_run(tmp_path / "a", "pong", 1, 5000, lr_IQN=1e-4)
    write_run(tmp_path / "b", "pong", 1, 5000, lr_IQN=1e-3)
    runs = read_inputs([tmp_path]).runs
    assert len(runs) == 2 and len(group_runs(runs)) == 2


def test_tables_of_an_older_report_are_no_logs(tmp_path: Path) -> None:
    write_run(tmp_path, "pong", 1, 5000)
    (tmp_path / TABLES).mkdir()
    (tmp_path / TABLES / "games.csv").write_text("agent,game\n")
    assert read_inputs([tmp_path]).left_out == []


def test_scores_of_evaluation_actors_are_no_scores_of_training(tmp_path: Path) -> None:
    # Mutation: name the file among those that are no training logs, though it is where it belongs.
    path = write_run(tmp_path, "pong", 1, 5000)
    EvaluationScores(tmp_path / "pong_evaluation.csv").append([VersionedRecord(score_saber=7.0, end="stuck")])
    inputs = read_inputs([tmp_path])
    assert ([run.path for run in inputs.runs], inputs.left_out) == ([path], [])


def test_odd_trees_are_searched(tmp_path: Path) -> None:
    elsewhere = write_run(tmp_path / "elsewhere", "pong", 1, 5000)
    results = tmp_path / "results"
    write_run(results / "own", "qbert", 1, 5000)
    (results / "folder.csv").mkdir()
    (results / "dangling.csv").symlink_to("nowhere")
    (results / "linked").symlink_to(elsewhere.parent)
    (results / "circle").symlink_to(results)
    inputs = read_inputs([results])
    assert [run.path for run in inputs.runs] == [results / "own" / "qbert.csv"]
    assert inputs.left_out == [
        f"{results / 'linked'}: leads out of {results}; name it, too",
        f"{results / 'dangling.csv'}: No such file or directory",
    ]
    (results / "named.csv").symlink_to(elsewhere)
    assert [run.path for run in read_inputs([results / "named.csv"]).runs] == [elsewhere]


def test_a_folder_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: pass over it.
    write_run(tmp_path / "a", "pong", 1, 5000)
    closed = str(tmp_path / "closed")
    (tmp_path / "closed").mkdir()
    scan = os.scandir

    def refuse(path: str) -> object:  # root may read everything
        if path == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scan(path)

    monkeypatch.setattr("os.scandir", refuse)
    assert read_inputs([tmp_path]).left_out == [f"{closed}: Permission denied"]


def test_a_file_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    # Mutation: an error, which would end the whole report. Root may read files of any mode, but not this one.
    write_run(tmp_path / "runs", "pong", 1, 5000)
    unread = tmp_path / "runs" / "other" / "x.csv"
    unread.parent.mkdir()
    unread.symlink_to("/proc/self/mem")
    inputs = read_inputs([tmp_path])
    assert len(inputs.runs) == 1 and inputs.left_out == [f"{unread}: it leads out of {tmp_path}"]
    with pytest.raises(UserError, match="there is no training log in"):
        read_inputs([tmp_path], [Label("a", unread.parent)])
    with pytest.raises(OSError, match="Input/output error"):
        read_inputs([unread])


def test_runs_begun_from_snapshots_of_their_games_agree(tmp_path: Path) -> None:
    write_run(tmp_path, "pong", 1, 5000, model="pong.pth")
    write_run(tmp_path, "alien", 1, 5000, model="alien.pth")
    assert len(group_runs(read_inputs([tmp_path]).runs)) == 1
    write_run(tmp_path, "qbert", 1, 5000, model=None)
    names = [group.name for group in group_runs(read_inputs([tmp_path]).runs)]
    assert names == ["agent not recorded (model a snapshot)", "agent not recorded (model none)"]


def test_other_seeds_are_other_runs_however_equal_their_episodes(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_settings(write_log(tmp_path / str(seed), "freeway", [100, 200], [0.0, 0.0]), 300, {"seed": seed})
    assert len(read_inputs([tmp_path]).runs) == 2


def test_what_is_no_run_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("seed,score\n1,2\n")
    (tmp_path / "empty.csv").write_text(f"{HEADER}\n")
    (tmp_path / "torn.csv").write_text(f"{HEADER}\n1,2\n")
    write_run(tmp_path, "pong", 1, 5000).with_suffix(".json").write_text("[]")
    for name, text in (
        ("missing", "no such file or folder"),
        ("other.csv", "not a training log"),
        ("empty.csv", "no training log with an episode"),
        ("torn.csv", "torn.csv, line 2: .* is not an episode"),
        ("pong.csv", "pong.json: not a run's record"),
    ):
        with pytest.raises(UserError, match=text) as caught:
            read_inputs([tmp_path / name])
        assert "\n" not in str(caught.value)


def test_a_record_comes_back_and_counts_only_starts_that_differ(tmp_path: Path) -> None:
    start = present_start({"seed": 7, "model": Path("a.pth"), "discount": 0.99})
    assert start.settings == {"seed": 7, "model": "a.pth", "discount": 0.99}
    assert start.versions["ale-py"] and start.versions["python"] and start.commit
    other = Start(start.settings, start.versions, "another")
    record = RunRecord("pong", 4, 0, (start,)).started(start).started(other)
    assert record.starts == (start, other)
    write_record(tmp_path / "pong.json", record)
    assert read_record(tmp_path / "pong.json") == record
    assert read_record(tmp_path / "none.json") is None

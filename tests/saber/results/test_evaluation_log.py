import dataclasses
import json
import random
import shutil
from pathlib import Path

import pytest

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.saber.results.evaluation_log import (
    EvaluationLog,
    EvaluationRecord,
    read_evaluation,
    read_evaluation_record,
)

RECORD = EvaluationRecord("m.pth", "0123", 7, {"game": "pong", "action_repeat": 4}, "cpu", {"torch": "2"}, ["abc"], 50)


def episode(number: int) -> EpisodeRecord:
    return EpisodeRecord(0, 0, 0, 0, number, number / 4, number / 2, number, 7 + number, "game_over")


def log_of(path: Path, numbers: list[int], record: EvaluationRecord = RECORD) -> EvaluationLog:
    with EvaluationLog(path, record) as log:
        for number in numbers:
            log.add(1000 + number, episode(number))
        log.write()
    return log


def visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def test_the_csv_is_in_the_order_of_the_episodes(tmp_path: Path) -> None:
    mixed = list(range(50))
    random.Random(0).shuffle(mixed)
    log_of(tmp_path / "one.csv", list(range(50)))
    log_of(tmp_path / "other.csv", mixed)
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "other.csv").read_bytes()
    header, *lines = (tmp_path / "one.csv").read_text().splitlines()
    assert header == "episode,seed,score_5min,score_30min,score_saber,length,end"
    assert lines[6] == "6,1006,1.5,3,6,13,game_over"
    assert json.loads(f"[{lines[48].rpartition(',')[0]}]") == [48, 1048, 12, 24, 48, 55]


def test_what_is_written_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    with EvaluationLog(path, RECORD) as log:
        log.add(1, episode(0))
        log.write()
        path.unlink()
        log.write()
        assert not path.exists()
        log.add(2, episode(1))
        log.write()
    assert len(read_evaluation(path)) == 2


def test_what_is_there_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    log_of(path, [0, 9, 4])
    again = log_of(path, [2], dataclasses.replace(RECORD, commits=["def"], model="elsewhere.pth", episodes=8))
    assert [record.episode for _, record in again.episodes] == [0, 2, 4]
    assert [record for _, record in read_evaluation(path)] == [episode(number) for number in (0, 2, 4, 9)]
    record = read_evaluation_record(path.with_suffix(".json"))
    assert (record.commits, record.episodes) == (["abc", "def"], 50), "who has played, and the most that was asked for"


@pytest.mark.parametrize("score", [float("nan"), 1e15])
def test_an_episode_that_the_file_cannot_hold_leaves_the_others(score: float, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    with EvaluationLog(path, RECORD) as log:
        log.add(1000, episode(0))
        with pytest.raises(RunError, match=r"x\.csv cannot hold episode 1: .* - at `\$\.score_saber`, found "):
            log.add(1001, dataclasses.replace(episode(1), score_saber=score))
        log.write()
    assert [record for _, record in read_evaluation(path)] == [episode(0)]


def test_one_at_a_time_writes(tmp_path: Path) -> None:
    with EvaluationLog(tmp_path / "x.csv", RECORD):
        with pytest.raises(ValueError, match=r"another evaluation is writing .*x\.csv"):
            EvaluationLog(tmp_path / "x.csv", RECORD)
        log_of(tmp_path / "y.csv", [0])
    log_of(tmp_path / "x.csv", [0])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"weights": "4567"}, "weights is '4567', and was '0123'"),
        ({"seed": 8}, "seed is 8, and was 7"),
        ({"device": "H200"}, "device is 'H200', and was 'cpu'"),
        ({"settings": {"game": "pong", "action_repeat": 3}}, "action_repeat is 3, and was 4"),
        ({"settings": {"game": "pong", "action_repeat": 4, "new": 1}}, "new is 1, and was None"),
        ({"settings": {"game": "pong"}}, "action_repeat is None, and was 4"),
        ({"versions": {"torch": "3"}}, "torch is '3', and was '2'"),
    ],
)
def test_another_evaluation_is_refused_and_changes_nothing(
    tmp_path: Path, changes: dict[str, object], told: str
) -> None:
    path = tmp_path / "x.csv"
    log_of(path, [0, 1])
    before = {file: file.read_bytes() for file in visible(tmp_path)}
    with pytest.raises(ValueError, match=r"x\.csv is of another evaluation \(of m\.pth\): ") as caught:
        EvaluationLog(path, dataclasses.replace(RECORD, **changes))  # type: ignore[arg-type]
    assert str(caught.value).endswith(f": {told}")
    assert {file: file.read_bytes() for file in visible(tmp_path)} == before


def test_a_package_that_only_one_record_names_is_no_difference(tmp_path: Path) -> None:
    # Mutation: compare it with nothing, so that no evaluation of an earlier commit goes on.
    log_of(tmp_path / "x.csv", [0, 1])
    later = dataclasses.replace(RECORD, versions=RECORD.versions | {"mujoco": "3.17"})
    with EvaluationLog(tmp_path / "x.csv", later) as log:
        assert len(log.episodes) == 2


def test_a_csv_without_its_record_is_refused(tmp_path: Path) -> None:
    log_of(tmp_path / "x.csv", [0])
    (tmp_path / "x.json").unlink()
    with pytest.raises(ValueError, match=r"how it was made is not known: .*x.json is missing"):
        EvaluationLog(tmp_path / "x.csv", RECORD)


def test_a_full_disk_costs_nothing_but_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "gone"  # a folder that is not there stands for a disk that takes nothing
    folder.mkdir()
    with EvaluationLog(folder / "x.csv", RECORD) as log:
        shutil.rmtree(folder)
        log.add(1000, episode(0))
        assert "Not written, and tried again in 10 sec: " in capsys.readouterr().err
        log.add(1001, episode(1))
        assert capsys.readouterr().err == "", "not a line for each episode"
        with pytest.raises(OSError, match="gone"):
            log.write()
        folder.mkdir()
        monkeypatch.setattr("time.monotonic", lambda: 1e9)
        log.add(1002, episode(2))
        assert len(read_evaluation(folder / "x.csv")) == 3


def test_without_an_episode_there_is_no_file(tmp_path: Path) -> None:
    log_of(tmp_path / "x.csv", [])
    assert visible(tmp_path) == []

"""What the dashboard reads of a results folder: each line once, whatever somebody has written there."""

import json
import os
import threading
from pathlib import Path
from typing import IO, Any

import pytest

from rainbow_iqn_apex.common.files import open_regular
from rainbow_iqn_apex.monitoring.report import Event, Report
from rainbow_iqn_apex.monitoring.sinks.history import HistorySink
from rainbow_iqn_apex.monitoring.sinks.sink import Feeder
from rainbow_iqn_apex.programs.dashboard import run_files
from rainbow_iqn_apex.programs.dashboard.results import Results, find_runs
from rainbow_iqn_apex.programs.dashboard.run_files import History, Tail
from rainbow_iqn_apex.saber.results.run_record import RunRecord, Start, write_record
from tests.dashboard import episodes, moment, write_run
from tests.monitoring.sinks.moments import NobodyElse


def test_a_tail_gives_whole_lines_once_and_begins_anew_with_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = Tail(path, tmp_path)
    with pytest.raises(FileNotFoundError):
        tail.read()
    path.write_bytes(b"a\nb\ntor")
    assert tail.read() == (b"a\nb\n", True)
    assert tail.read() == (b"", False)
    with path.open("ab") as file:
        file.write(b"n\n")
    assert tail.read() == (b"torn\n", False)
    other = tmp_path / "other"
    other.write_bytes(b"longer than the one before\n")
    other.replace(path)
    assert tail.read() == (b"longer than the one before\n", True)
    path.write_bytes(b"short\n")
    assert tail.read() == (b"short\n", True)
    path.write_bytes(b"")  # as a copy of the whole begins
    assert tail.read() == (b"", True)
    path.write_bytes(b"header\n")
    assert tail.read() == (b"header\n", True)


def test_a_line_that_never_ends_is_passed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"0" * (run_files._AT_ONCE + 3) + b"\n1\n")
    reader = Tail(path, tmp_path)
    assert len(reader.read()[0]) == run_files._AT_ONCE and reader.has_more
    path.rename(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError):
        reader.read()
    assert not reader.has_more, "nor will it ever come"
    (tmp_path / "elsewhere").rename(path)
    assert len(reader.read()[0]) == 6 and not reader.has_more


def test_another_file_with_the_inode_of_the_one_before_is_read_from_its_beginning(tmp_path: Path) -> None:
    # Mutation: compare inodes and sizes alone: a file system gives the inode of a deleted file to the next but one.
    path = tmp_path / "log"
    path.write_bytes(b"a\nb\n")
    tail = Tail(path, tmp_path)
    assert tail.read() == (b"a\nb\n", True)
    path.write_bytes(b"another\nb\n")  # into the same inode
    assert tail.read() == (b"another\nb\n", True)
    with path.open("ab") as file:
        file.write(b"c\n" * 1000)
    assert tail.read() == (b"c\n" * 1000, False)


def test_a_file_that_is_replaced_while_it_is_read_is_read_from_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = tmp_path / "log", tmp_path / "other"
    path.write_bytes(b"a\nb\n")
    other.write_bytes(b"c\nd\ne\n")

    def replaced_at_once(path: Path, folder: Path) -> IO[bytes]:
        file = open_regular(path, folder)
        other.replace(path)
        return file

    reader = Tail(path, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(run_files, "open_regular", replaced_at_once)
        assert reader.read() == (b"a\nb\n", True)
    assert reader.read() == (b"c\nd\ne\n", True)


def test_a_log_that_is_too_long_says_so(tmp_path: Path) -> None:
    write_run(tmp_path, "pong", 3)
    with (tmp_path / "pong.csv").open("r+b") as file:
        file.truncate((256 << 20) + 1)  # a hole behind three episodes
    (run,) = Results(tmp_path).scores(["pong"])["runs"]
    assert run["problem"] == "pong.csv: only its first 256 MiB are read" and len(run["training"]["steps"]) == 3


def test_runs_are_found_below_the_folder_and_foreign_files_are_not(tmp_path: Path) -> None:
    for folder, task in ((".", "pong"), ("seed7", "pong"), ("a/b/c", "chain"), ("a/b/c/too/deep", "chain")):
        write_run(tmp_path / folder, task, 1)
    (tmp_path / "accounts.csv").write_text("name,sum\n")
    (tmp_path / "pong_evaluation.csv").write_text("T_actors\n")
    assert {key.title for key in find_runs(tmp_path)} == {"pong", "seed7/pong", "a/b/c/chain"}
    assert find_runs(tmp_path / "missing") == []


def test_no_link_is_followed_out_of_the_folder_which_may_be_a_link(tmp_path: Path) -> None:
    # Mutation: os.walk(results, followlinks=True).
    write_run(tmp_path / "elsewhere", "pong", 1)
    write_run(tmp_path / "disk" / "seed7", "pong", 1)
    results = tmp_path / "results"
    results.symlink_to(tmp_path / "disk")
    (tmp_path / "disk" / "out").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "disk" / "circle").symlink_to(results)
    (tmp_path / "disk" / "breakout.csv").symlink_to("seed7/pong.csv")
    assert {key.title for key in find_runs(results)} == {"seed7/pong", "breakout"}
    assert Results(results).title_in(tmp_path / "disk" / "seed7", "pong") == "seed7/pong"
    assert Results(results).title_in(tmp_path / "disk", "pong") == ""


def test_the_newest_runs_are_found_among_many(tmp_path: Path) -> None:
    # Mutation: look into the first hundred folders alone.
    for number in range(120):
        write_run(tmp_path / f"seed-{number:03}", "pong", 1)
        os.utime(tmp_path / f"seed-{number:03}" / "pong.csv", (1e9 + number, 1e9 + number))
    found = [key.title for key in find_runs(tmp_path)]
    assert found == [f"seed-{number:03}/pong" for number in range(119, 19, -1)]


def test_a_folder_whose_name_is_not_utf_8_has_a_title_that_is(tmp_path: Path) -> None:
    # Mutation: the name as Python reads it, which no page can be sent.
    write_run(tmp_path / os.fsdecode(b"r\xff"), "pong", 1)
    assert [key.title.encode() for key in find_runs(tmp_path)] == [b"r\\udcff/pong"]
    results = Results(tmp_path)
    before = results.stamp("r\\udcff/pong")
    with (tmp_path / os.fsdecode(b"r\xff") / "pong.csv").open("a") as file:
        file.write("no,episode\n")
    (run,) = results.scores(["r\\udcff/pong"])["runs"]
    assert "is not an episode" in json.dumps(run, ensure_ascii=False).encode().decode()
    assert results.stamp("r\\udcff/pong") != before


def test_curves_grow_with_their_file(tmp_path: Path) -> None:
    # Mutation: read the file from its beginning at each look.
    write_run(tmp_path, "pong", 3)
    write_run(tmp_path / "other", "pong", 5, score=7.0)
    results = Results(tmp_path)
    before = results.stamp("pong")
    shown = results.scores(["pong", "other/pong", "../secret", "pong"])
    assert [(run["title"], run["training"]["mean"][-1]) for run in shown["runs"]] == [
        ("pong", 3.0),
        ("other/pong", 7.0),
    ]
    assert shown["runs"][0]["training"]["steps"] == [0, 10, 20]
    assert {line["name"] for line in shown["lines"]} >= {
        "random",
        "human",
        "world record",
        "DQN, Dopamine (sticky actions, 200 M)",
    }
    with (tmp_path / "pong.csv").open("a") as file:
        file.write(episodes(5, 8.0, first=3))
    assert results.stamp("pong") != before
    training = results.scores(["pong"])["runs"][0]["training"]
    assert training["mean"][-1] == pytest.approx((3 * 3 + 2 * 8) / 5) and training["episodes"][-1] == 5
    facts = results.facts("pong")
    assert facts["normalised"]["human"]["training"] == pytest.approx((5.0 + 20.7) / (14.6 + 20.7), abs=0.01)


@pytest.mark.parametrize(("t_max", "done"), [(400, 0.75), (200, 1.0), ("many", 1.0), (None, 1.0)])
def test_a_run_that_no_server_holds_shows_how_far_it_got(tmp_path: Path, t_max: object, done: float) -> None:
    # Mutation: take the metrics of the history alone, which ends before the run does.
    write_run(tmp_path, "pong", 3)
    (tmp_path / "pong_metrics.jsonl").write_text(moment(60, 290, time__total_timesteps=290, redis__unread=2))
    start = Start({"T_max": t_max, "agent": "ppo"}, {}, "")
    write_record(tmp_path / "pong.json", RunRecord("pong", 4, 300, (start,)))
    facts = Results(tmp_path).facts("pong")
    assert facts["t_max"] == (t_max if isinstance(t_max, int) else None)
    assert facts["metrics"] == {
        "time/total_timesteps": 300, "time/frames": 1200, "time/progress": done, "redis/unread": 2,
    }  # fmt: skip
    (tmp_path / "pong.json").unlink()
    assert Results(tmp_path).facts("pong")["metrics"] == {"time/total_timesteps": 290, "redis/unread": 2}


def test_games_that_are_too_many_to_draw_are_counted(tmp_path: Path) -> None:
    games = "pong,breakout,krull,qbert"
    write_run(tmp_path, games.replace(",", "-"), 3)
    write_record(
        tmp_path / f"{games.replace(',', '-')}.json",
        RunRecord(games.replace(",", "-"), 4, 300, (Start({"game": games}, {}, ""),)),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_files, "_MOST_GAMES", 3)
        shown = Results(tmp_path).scores(["pong-breakout-krull-qbert"])
    assert len(shown["runs"]) == 3 and shown["games_left_out"] == 1 and shown["left_out"] == 0


def test_a_large_log_is_read_in_parts_and_blocks_no_other_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: one lock for all runs, or read a file to its end at each look.
    monkeypatch.setattr(run_files, "_AT_ONCE", 4000)
    write_run(tmp_path, "pong", 300)
    write_run(tmp_path / "other", "pong", 5)
    results = Results(tmp_path)
    read = [run for _ in range(9) for run in results.scores(["pong"])["runs"]]
    assert read[0]["has_more"] and 0 < read[0]["training"]["steps"][-1] < 2000
    assert not read[-1]["has_more"] and read[-1]["training"]["steps"][-1] == 2990
    reading, done = threading.Event(), threading.Event()

    def parse_slowly(*_: object) -> list[Any]:
        reading.set()
        assert done.wait(60)
        return []

    with (tmp_path / "pong.csv").open("a") as file:
        file.write(episodes(301, first=300))
    with monkeypatch.context() as patch:
        patch.setattr(run_files, "parse_csv", parse_slowly)
        reader = threading.Thread(target=results.facts, args=("pong",))
        reader.start()
        assert reading.wait(60)
    other = threading.Thread(target=results.facts, args=("other/pong",))
    other.start()
    other.join(60)
    was_blocked = other.is_alive()
    done.set()
    reader.join()
    assert not was_blocked


def test_a_log_that_was_read_before_its_record_is_parted_among_the_games(tmp_path: Path) -> None:
    # Mutation: go on reading where the other curves have ended.
    write_run(tmp_path, "pong-krull", 4)
    results = Results(tmp_path)
    assert len(results.scores(["pong-krull"])["runs"]) == 1
    record = RunRecord("pong-krull", 4, 300, (Start({"game": "pong,krull"}, {}, ""),))
    write_record(tmp_path / "pong-krull.json", record)
    runs = results.scores(["pong-krull"])["runs"]
    assert sorted(step for run in runs for step in run["training"]["steps"]) == [0, 10, 20, 30]


def test_a_damaged_log_is_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    write_run(tmp_path, "pong", 3)
    (tmp_path / "pong_metrics.jsonl").write_text(moment(0, 0) + moment(3600, 20, train__loss=0.5, train__mine=2.0))
    with (tmp_path / "pong.csv").open("a") as file:
        file.write("no,episode\n")
    results = Results(tmp_path)
    for _ in range(2):
        (run,) = results.scores(["pong"])["runs"]
    assert "line" in run["problem"] and "is not an episode" in run["problem"]
    values = results.metrics("pong", ["train/loss", "evil"])["values"]
    assert values == {"train/loss": [None, 0.5], "train/mine": [None, 2.0]}, "what the agent has named is there unasked"


def test_hours_leave_out_the_time_in_which_the_learner_was_down(tmp_path: Path) -> None:
    path = tmp_path / "pong_metrics.jsonl"
    path.write_text(moment(0, 0) + moment(360, 100) + moment(720, 200) + moment(90_000, 100) + moment(90_360, 300))
    history = History(path, tmp_path)
    history.look()
    assert history.hours == pytest.approx([0, 0.1, 0.2, 0.2, 0.3])
    assert history.hours_at([0, 100, 200, 300]) == pytest.approx([0, 0.2, 0.25, 0.3]), (
        "steps played twice: the last time"
    )
    assert History(tmp_path / "none", tmp_path).hours_at([1]) is None


def test_a_long_history_keeps_its_newest_line_and_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutations: leave events out with their lines; keep the older one of two lines.
    monkeypatch.setattr(run_files, "_MOST_LINES", 10)
    path, feeder = tmp_path / "pong_metrics.jsonl", Feeder([HistorySink(tmp_path / "pong_metrics.jsonl")], NobodyElse())
    for second in range(24):
        events = tuple(Event(float(at), f"event {at}") for at in range(max(0, second - 3), second + 1))
        feeder.observe(Report("learner", 0, "host", 7, 0, 10 * second, events=events))
    history = History(path, tmp_path)
    history.look()
    assert history.lines[-1].at == 230 and len(history.lines) == len(history.hours) <= 10
    assert [event.text for event in history.events] == [f"event {at}" for at in range(24)]


def test_an_event_between_two_moments_is_not_lost(tmp_path: Path) -> None:
    # Mutation: take the events that the report has when a moment is due: it has the newest alone.
    path, feeder = tmp_path / "pong_metrics.jsonl", Feeder([HistorySink(tmp_path / "pong_metrics.jsonl")], NobodyElse())
    for second in range(12):
        feeder.observe(Report("learner", 0, "host", 7, 0, second, events=(Event(float(second), f"event {second}"),)))
    history = History(path, tmp_path)
    history.look()
    assert len(history.lines) == 2 and len(history.events) == 11


def test_hours_of_a_long_run_are_all_counted(tmp_path: Path) -> None:
    # Mutation: count no gap of more than ten minutes, or halve the lines before the gaps are taken.
    path, began, hours, downtime = tmp_path / "pong_metrics.jsonl", 1e9, 720, 3 * 3600
    for learner in range(2):
        feeder = Feeder([HistorySink(path)], NobodyElse())
        for second in range(0, hours * 3600 + 1, 120):
            feeder.observe(Report("learner", 0, "host", 7, began, began + second))
        began += hours * 3600 + downtime
        history = History(path, tmp_path)
        history.look()
        assert history.hours[-1] == pytest.approx(hours * (learner + 1), rel=0.001)


@pytest.mark.parametrize(
    "line",
    [
        "[]", "{}", "null", '"x"', "\x00", "[" * 100_000,
        '{"at": 1, "step": 1e999, "values": {}, "events": []}',
        '{"at": 1, "step": 1e30, "values": {}, "events": []}',
        '{"at": 1e30, "step": 1, "values": {}, "events": []}',
        '{"at": 1, "step": 1, "values": {}, "events": [[1e30, "", false]]}',
        '{"at": NaN, "step": 1, "values": {}, "events": []}',
        '{"at": 1, "step": 1, "values": {"train/loss": Infinity}, "events": []}',
        '{"at": 1, "step": 1, "values": [], "events": []}',
        '{"at": 1, "step": 1, "values": {}, "events": [[1]]}',
    ],
)  # fmt: skip
def test_lines_that_no_learner_wrote_are_left_out(tmp_path: Path, line: str) -> None:
    # Mutation: let `history.parse` accept numbers that are not finite.
    path = tmp_path / "pong_metrics.jsonl"
    path.write_text(moment(0, 0) + line + "\n" + moment(10, 5))
    history = History(path, tmp_path)
    history.look()
    assert [known.step for known in history.lines] == [0, 5]

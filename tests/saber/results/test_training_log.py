import errno
import gc
import os
import random
import resource
import stat
import tracemalloc
from bisect import bisect_right
from collections.abc import Callable
from copy import copy
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rainbow_iqn_apex.common.files import write_file
from rainbow_iqn_apex.environments.scores import EpisodeRecord, VersionedRecord
from rainbow_iqn_apex.monitoring.sinks.history import HistorySink
from rainbow_iqn_apex.monitoring.sinks.sink import Moment
from rainbow_iqn_apex.saber.results import training_log
from rainbow_iqn_apex.saber.results.summary import ScoreCurve
from rainbow_iqn_apex.saber.results.training_log import EvaluationScores, TrainingLog, read_records
from tests.saber.results.records import stream

RECORD = EpisodeRecord(1200, 300, 2, 1, 7, 100.0, 150.5, -0.0, 345, "game_over")


@pytest.mark.parametrize(
    ("log", "record", "column", "cell"),
    [
        (TrainingLog, RECORD, b"", b""),
        (EvaluationScores, VersionedRecord(**asdict(RECORD), version=12), b",version", b",12"),
    ],
)
def test_the_files_are_as_documented(
    tmp_path: Path, log: type[TrainingLog], record: EpisodeRecord, column: bytes, cell: bytes
) -> None:
    path = tmp_path / "new_folder" / "pong.csv"
    log(path).append([record])
    assert path.read_bytes() == (
        b"T_actors,T_learner,actor,env,episode,score_5min,score_30min,score_saber,length,end" + column + b"\n"
        b"1200,300,2,1,7,100,150.5,0,345,game_over" + cell + b"\n"
    )
    assert list(log(path).records) == [record]


def test_equal_records_give_equal_bytes_however_they_come(tmp_path: Path) -> None:
    records = stream(100)
    TrainingLog(tmp_path / "at_once.csv").append(records)
    for record in records:  # a new process for each
        of_numpy: dict[str, Any] = {"score_saber": np.float64(record.score_saber), "length": np.int64(record.length)}
        TrainingLog(tmp_path / "one_by_one.csv").append([replace(record, **of_numpy)])
    assert (tmp_path / "at_once.csv").read_bytes() == (tmp_path / "one_by_one.csv").read_bytes()


def test_episodes_seen_before_are_ignored(tmp_path: Path) -> None:
    # Mutation: `>=` for `>`; or a key without the environment.
    path, records = tmp_path / "pong.csv", stream(60)
    log = TrainingLog(path)
    log.append(records[:40])
    size = path.stat().st_size
    assert log.append(records[10:40]) == []
    assert path.stat().st_size == size
    resumed = TrainingLog(path)
    assert resumed.append(records[5:50] + records[45:60]) == records[40:60]
    assert list(resumed.records) == records == read_records(path)


@pytest.mark.parametrize("seed", range(20))
def test_episodes_that_come_again_are_logged_as_if_for_the_first_time(tmp_path: Path, seed: int) -> None:
    # Mutations: no `go_back`; `_write` that forgets the pending ones, or that always appends.
    rng, path, records = random.Random(seed), tmp_path / "pong.csv", stream(60, seed)
    undisturbed = TrainingLog(tmp_path / "undisturbed.csv")
    undisturbed.append(records)
    log = TrainingLog(path)
    log.append(records[:20])
    size = log.size
    log.append(records[20:30])  # of a learner that is killed then, or leaves
    first = {actor: rng.randrange(31, 50) for actor in range(3)}  # so far the actors have played in the meantime
    early = [record for index, record in enumerate(records[30:], 30) if index < first[record.actor]]
    log.append([replace(record, T_learner=7) for record in sorted(early, key=lambda record: record.actor)])
    before = len(read_records(path))

    resumed = TrainingLog(path)
    resumed.go_back(size)
    assert list(resumed.records) == records[:20]
    assert len(read_records(path)) == before, "what will come again is there until it comes"
    place = 20
    while place < 60:
        count = rng.randrange(1, 12)
        assert resumed.append(records[: place + count]) == records[place : place + count]
        assert list(resumed.records) == records[: place + count]
        assert resumed.size == len(path.read_bytes()) or place < 50
        in_file = {(record.actor, record.env, record.episode) for record in read_records(path)}
        assert in_file >= {(record.actor, record.env, record.episode) for record in early}
        place += count
    assert path.read_bytes() == undisturbed.path.read_bytes()


def test_episodes_of_those_who_have_left_are_not_expected_for_ever(tmp_path: Path) -> None:
    # Mutation: no `settle`; then they come behind all others, and every episode writes the whole file anew.
    path, records = tmp_path / "pong.csv", [record for record in stream(60) if record.actor != 2]
    left = [replace(record, actor=2, episode=episode) for episode, record in enumerate(records[20:23])]
    log = TrainingLog(path)
    log.append(records[:20])
    size = log.size
    log.append([*left, *records[20:25]])
    for _ in range(2):  # the second time after a kill
        resumed = TrainingLog(path)
        resumed.go_back(size)
        resumed.settle(2)
        assert list(resumed.records) == [*records[:20], *left]
        resumed.append(records[20:30])
    assert resumed.size == path.stat().st_size
    assert read_records(path) == [*records[:20], *left, *records[20:30]]


def test_going_back_to_no_place_changes_nothing(tmp_path: Path) -> None:
    path, records = tmp_path / "pong.csv", stream(20)
    TrainingLog(path).append(records[:10])
    size = path.stat().st_size
    for place in (0, 5, size - 1, size, size + 1, 10**9, -1):
        log = TrainingLog(path)
        log.go_back(place)
        assert (list(log.records), log.size, path.stat().st_size) == (records[:10], size, size)
    log.append(records)
    assert read_records(path) == records


def test_a_torn_last_line_is_cut_off_wherever_it_broke(tmp_path: Path) -> None:
    # Mutation: leave out `file.truncate`.
    path, records = tmp_path / "pong.csv", stream(4)
    TrainingLog(path).append(records)
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        log = TrainingLog(path)
        kept = max(0, whole[:size].count(b"\n") - 1)
        assert list(log.records) == records[:kept]
        assert log.append(records) == records[kept:]
        assert path.read_bytes() == whole


def _broken(*_: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_an_error_of_the_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: leave out `named_in_errors` in one place.
    path, history = tmp_path / "pong.csv", HistorySink(tmp_path / "pong_metrics.jsonl")
    TrainingLog(path).append([RECORD])
    log = TrainingLog(path)
    with path.open("ab") as file:
        file.write(b"torn")
    monkeypatch.setattr(os, "fsync", _broken)
    actions = (
        lambda: log.append([replace(RECORD, episode=99)]),
        lambda: TrainingLog(path),
        lambda: write_file(path, b""),
    )
    for action in actions:
        with pytest.raises(OSError, match=f"Input/output error: '{path}'"):
            action()
    monkeypatch.undo()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5, hard))  # SIGXFSZ is ignored by Python
    try:
        with pytest.raises(OSError, match=f"{path}: could not write"):
            log.append([replace(RECORD, episode=99)])
        with pytest.raises(OSError, match=r"File too large: '.*pong_metrics\.jsonl'"):
            history.take(Moment(1.5e9, 1, {f"train/{number}": 1.0 for number in range(99)}, {}, ()))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert read_records(path) == [RECORD]
    unreadable = SimpleNamespace(st_mode=stat.S_IFREG, st_size=1)
    monkeypatch.setattr(os, "fstat", lambda _: unreadable)  # of a file whose first byte cannot be read
    with pytest.raises(OSError, match="Input/output error: '/proc/self/mem'"):
        read_records(Path("/proc/self/mem"))


def test_reading_alone_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "pong.csv"
    TrainingLog(path).append([RECORD])
    torn = path.read_bytes() + b"1300,3"
    path.write_bytes(torn)
    assert read_records(path) == [RECORD]
    assert path.read_bytes() == torn


@pytest.mark.parametrize(
    "changes",
    [{"score_saber": float("nan")}, {"score_5min": 1e15}, {"length": 10**15}, {"end": "a,b"}, {"end": "fin\u00e9"}],
)
def test_what_could_not_be_read_back_is_not_written(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "pong.csv"
    log = TrainingLog(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r" - at `\$\."):
        log.append([RECORD, replace(RECORD, episode=8, **changes)])
    assert path.read_bytes() == before
    assert log.append([RECORD]) == [RECORD]


def test_a_failed_write_leaves_no_trace_and_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: leave out `file.truncate(size)`.
    path = tmp_path / "pong.csv"
    log = TrainingLog(path)
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="disk full"):
            log.append([RECORD])
    assert path.read_bytes() == before
    assert list(log.records) == []
    assert log.append([RECORD]) == [RECORD]
    assert read_records(path) == [RECORD]


def test_a_log_moved_away_does_not_come_back_without_its_header(tmp_path: Path) -> None:
    path = tmp_path / "pong.csv"
    log = TrainingLog(path)
    path.rename(tmp_path / "moved.csv")
    with pytest.raises(FileNotFoundError):
        log.append([RECORD])
    assert not path.exists()


def held() -> int:
    """Count the episodes that are in memory."""
    return sum(type(each) is EpisodeRecord for each in gc.get_objects())


def test_the_memory_of_a_log_and_its_curve_does_not_grow_with_the_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A learner plays 12 000 episodes, and another one resumes; the curve is that of all of them."""
    # Mutations: keep all records; let the curve keep them; fold what is added at once as a whole.
    monkeypatch.setattr(training_log, "_KEPT", 1000)
    path, records = tmp_path / "pole.csv", stream(12_000)
    grown = TrainingLog(path)
    for first in range(0, len(records), 5000):
        grown.append([copy(record) for record in records[first : first + 5000]])
    assert grown.curves[0].moments and held() - len(records) < 9000
    before = held()
    resumed = TrainingLog(path)
    assert resumed.curves[0].moments and held() - before < 9000
    assert (resumed.episodes, resumed.played) == (len(records), max(record.T_actors for record in records))
    assert list(resumed.recent[0]) == list(grown.recent[0]) == records[-1000:]
    assert list(resumed.records) == list(grown.records) == records[-200:]
    assert read_records(path) == records, "the file is complete"
    assert resumed.curves[0].moments == grown.curves[0].moments, "however many episodes are added at once"
    drawn, ordered = resumed.curves[0].moments, sorted(records, key=lambda record: record.T_actors)
    steps = [record.T_actors for record in ordered]
    assert 500 <= len(drawn) <= 1000 and drawn[-1].newest.T_actors == steps[-1]
    gaps = [after.newest.T_actors - before.newest.T_actors for before, after in pairwise(drawn)]
    assert max(gaps) < 1.1 * steps[-1] / 500
    stops = [bisect_right(steps, moment.newest.T_actors) for moment in drawn]
    exact = [ScoreCurve(2, ordered[max(0, stop - 100) : stop]).moments[-1].summary for stop in stops]
    differ = sum(moment.summary != summary for moment, summary in zip(drawn, exact, strict=True))
    assert differ < len(drawn) / 50, "episodes that end at the same step may be folded apart"


def test_a_learner_never_holds_the_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long run's log may be larger than the memory; spelling scores with many zeros makes this one large."""
    # Mutation: read the whole file in any of the four calls.
    monkeypatch.setattr(training_log, "_KEPT_OF_EACH", 100)
    monkeypatch.setattr(training_log, "_KEPT", 100)
    path = tmp_path / "pong.csv"
    TrainingLog(path)
    with path.open("ab") as file:
        for episode in range(4000):
            file.write(b"1,0,0,0,%d,1,1,1.%0900d,9,stuck\n" % (episode, 0))
    size, late = path.stat().st_size, EpisodeRecord(1, episode=4000, score_5min=2, end="stuck")
    TrainingLog(path).append([late])

    def used(act: Callable[[], Any]) -> int:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        act()
        return tracemalloc.get_traced_memory()[1] - before

    tracemalloc.start()
    try:
        most = {"open": used(lambda: TrainingLog(path))}
        log = TrainingLog(path)
        most |= {"part": used(lambda: log.part(2)), "go back": used(lambda: log.go_back(size))}
        most["come again"] = used(lambda: log.append([replace(late, score_5min=3)]))
    finally:
        tracemalloc.stop()
    assert max(most.values()) < size / 2, most
    assert (log.episodes, log.size) == (4001, path.stat().st_size)
    assert path.read_bytes()[size:] == b"1,0,0,0,4000,3,0,0,0,stuck\n"

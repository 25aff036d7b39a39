"""Films on their way from Redis to sinks: each once, the best one never a worse one, and nothing ends for one."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from rainbow_iqn_apex.memory.broker.connection import Client, connect
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.reports import FilmStore
from rainbow_iqn_apex.monitoring.overview import OverviewReader
from rainbow_iqn_apex.monitoring.report import Report
from rainbow_iqn_apex.monitoring.sinks.sink import Feeder, FilmReader, Guarded, KeptFilms, RunInfo
from rainbow_iqn_apex.monitoring.sinks.videos import FilmFiles, read_shown, video_path
from rainbow_iqn_apex.monitoring.video import FILM_BYTES, Film, FilmSlot, encode_film
from tests.conftest import RedisServer
from tests.monitoring.films import film
from tests.monitoring.sinks.moments import Taken, moment
from tests.videos import frames_of

LARGE = {"height": 105, "width": 80}


@pytest.fixture
def store(client: Client, run_name: str) -> Iterator[FilmStore]:
    with closing(FilmStore(client, run_name, "id")) as store:
        yield store


def show(films: dict[FilmSlot, Film]) -> dict[str, float]:
    return {place: found.info.score for place, found in films.items()}


@pytest.mark.redis
def test_each_film_is_handed_on_once(store: FilmStore) -> None:
    # Mutation: forget which films were seen, or take a worse one for the best.
    reader = FilmReader(store, {})
    assert reader.read(0) == {}
    store.write("best", encode_film(film(score=5.0)))
    store.write("newest", encode_film(film(score=2.0)))
    assert show(reader.read(10)) == {"best": 5, "newest": 2}
    assert reader.read(80) == {}
    store.write("best", encode_film(film(score=4.0)))
    assert reader.read(90) == {}, "Redis has lost a better one"
    store.write("best", encode_film(film(score=6.0)))
    store.write("newest", encode_film(film(score=1.0)))
    assert show(reader.read(100)) == {"best": 6, "newest": 1}


@pytest.mark.redis
def test_many_evaluation_actors_are_not_all_shown(store: FilmStore) -> None:
    # Mutation: take every newest film.
    reader, seen = FilmReader(store, {}), []
    for now in range(0, 200, 10):
        store.write("newest", encode_film(film(score=float(now))))
        seen += [found.info.score for found in reader.read(now).values()]
    assert seen == [0, 60, 120, 180]
    assert show(reader.read(199, last=True)) == {"newest": 190}


@pytest.mark.redis
def test_damaged_films_are_told_of_once_and_read_once(
    client: Client, store: FilmStore, run_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, keys = FilmReader(store, {}), Keys(run_name, "id", evaluation=True)
    for data in (
        b"x",
        b"\xff" * 300,
        encode_film(film(score=1e9))[:-5],
        encode_film(film(score=1e8)) + bytes(FILM_BYTES),
    ):
        store.write("best", data)
        assert reader.read(0) == {}
    client.delete(keys.film("best"))
    client.rpush(keys.film("best"), "x")
    assert reader.read(0) == {}
    store.write("best", encode_film(film(score=3.0)))
    assert show(reader.read(0)) == {"best": 3}, "what a damaged one claimed does not count"
    assert capsys.readouterr().out.count("A film of an evaluation episode is not shown: Redis holds") == 1


def test_nobody_waits_for_a_server_that_is_away(own_server: RedisServer) -> None:
    with closing(connect("127.0.0.1", own_server.port)) as client, closing(FilmStore(client, "run", "id")) as store:
        reader = FilmReader(store, {})
        store.write("best", encode_film(film()))
        own_server.stop()
        assert reader.read(0) == {}
        own_server.start()
        store.write("best", encode_film(film()))
        assert show(reader.read(0)) == {"best": 12.5}


@pytest.mark.redis
def test_films_come_with_moments_and_when_the_learner_leaves(client: Client, store: FilmStore, run_name: str) -> None:
    # Mutation: look for films at moments of live sinks, too.
    kept, live = Taken(), Taken(is_live=True)
    reader = FilmReader(FilmStore(client, run_name, "id"), {})
    feeder = Feeder([kept, live], OverviewReader(client.aside(), run_name), reader)
    report = Report("learner", 0, "host", 7, 0.0, 100_000.0)
    with closing(feeder):
        feeder.observe(report)
        for later in (10, 20):
            store.write("best", encode_film(film(score=float(later))))
            feeder.observe(replace(report, written=report.written + later))
        feeder.observe(replace(report, written=report.written + 30, ended=True))
    assert [len(moments) for moments in (kept.moments, live.moments)] == [2, 4]
    assert [show(dict(moment.films)) for moment in kept.moments] == [{}, {"best": 20}]


def test_a_long_run_keeps_all_best_films_and_few_of_the_newest() -> None:
    # Mutation: keep every film.
    kept, chosen = KeptFilms(), {"best": 0, "newest": 0}
    films: dict[FilmSlot, Film] = {"best": film(), "newest": film()}
    for second in range(0, 7 * 24 * 3600, 60):
        for place in kept.choose(films, second):
            chosen[place] += 1
    assert chosen["best"] == 7 * 24 * 60 and 400 < chosen["newest"] < 700


# --- files ---


def info_of(folder: Path) -> RunInfo:
    return RunInfo("run", "abc", folder, "pong", {})


def test_videos_are_replaced_and_told_of(tmp_path: Path) -> None:
    # Mutation: no `thinned` film, but another rate or height.
    sink = FilmFiles(info_of(tmp_path))
    sink.take(moment(1, films={"best": film(pictures=9, **LARGE), "newest": film(score=1.0, pictures=4, **LARGE)}))
    sink.take(moment(2))
    assert len(frames_of(video_path(tmp_path, "pong", "best"), 15)) == 9
    frames = frames_of(video_path(tmp_path, "pong", "newest"), 15)
    assert len(frames) == 4 and frames[0].shape == (210, 160, 3)
    sink.take(moment(3, films={"newest": film(score=2.0, pictures=6, **LARGE)}))
    sink.close()
    assert len(frames_of(video_path(tmp_path, "pong", "newest"), 15)) == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "pong_best_evaluation.webm", "pong_films.json", "pong_newest_evaluation.webm",
    ]  # fmt: skip
    shown = read_shown(tmp_path, "pong").of_run("abc")
    assert {place: info.score for place, info in shown.items()} == {"best": 12.5, "newest": 2}


@pytest.mark.redis
def test_a_learner_that_is_started_again_hands_nothing_on_twice(store: FilmStore, tmp_path: Path) -> None:
    # Mutation: forget the run's id.
    films: dict[FilmSlot, Film] = {"best": film(score=5.0), "newest": film(score=2.0)}
    for place, one in films.items():
        store.write(place, encode_film(one))
    FilmFiles(info_of(tmp_path)).take(moment(1, films=films))
    known = read_shown(tmp_path, "pong")
    assert FilmReader(store, known.of_run("abc")).read(0) == {}
    store.write("best", encode_film(film(score=4.0)))
    assert FilmReader(store, known.of_run("abc")).read(0) == {}
    assert show(FilmReader(store, known.of_run("another")).read(0)) == {"best": 4, "newest": 2}
    again = FilmFiles(info_of(tmp_path))
    again.take(moment(1, films={"newest": film(score=7.0)}))
    assert {place: info.score for place, info in read_shown(tmp_path, "pong").films.items()} == {"best": 5, "newest": 7}


@pytest.mark.parametrize(
    "content", [b"", b"x", b"[]", b"null", b'{"run": 1, "best": []}', b'{"best": {}}', b"[" * 9000, b"\xff"]
)
def test_a_damaged_file_tells_of_nothing(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "pong_films.json").write_bytes(content)
    assert read_shown(tmp_path, "pong").films == {}


def test_a_film_that_cannot_be_written_ends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "gone"
    # Mutation: forget a film that was not written: no moment has the best one again.
    sink = Guarded(FilmFiles(info_of(folder)))
    for step in range(3):
        sink.take(moment(step, films={"best": film(**LARGE)}))
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("Metrics are not written (FilmFiles: ") and "No such file or directory" in line
    folder.mkdir()
    sink.take(moment(4, films={"newest": film(**LARGE)}))
    assert json.loads((folder / "pong_films.json").read_text())["best"]["score"] == 12.5

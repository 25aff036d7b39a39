"""What an evaluation actor leaves of its films in Redis, whoever else writes there."""

import random
from collections.abc import Iterator
from contextlib import closing
from functools import cache

import pytest

from rainbow_iqn_apex.environments.extras import missing
from rainbow_iqn_apex.environments.interface import Environment, EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.memory.broker.connection import Client, connect
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.record import RunStatus
from rainbow_iqn_apex.memory.broker.reports import FilmStore
from rainbow_iqn_apex.monitoring.video import FILM_BYTES, HEADER_BYTES, FilmInfo, decode_film, decode_info, encode_film
from rainbow_iqn_apex.programs.actor import evaluation
from rainbow_iqn_apex.programs.actor.evaluation import Filmer
from tests.conftest import RedisServer
from tests.monitoring.films import film

pytestmark = pytest.mark.redis
BEGAN = RunStatus("id", "running", {}, t_learner=40, t_actors=50)


@pytest.fixture
def store(client: Client, run_name: str) -> Iterator[FilmStore]:
    with closing(FilmStore(client, run_name, "id")) as store:
        yield store


@pytest.fixture
def filmer(client: Client, run_name: str) -> Iterator[Filmer]:
    with closing(Filmer(FilmStore(client, run_name, "id"), 3)) as filmer:
        yield filmer


@cache
def pong() -> Environment:
    return make_environment(EnvironmentSettings(game="pong", record=True), 1)


def play(filmer: Filmer, score: float, episode: int = 0, steps: int = 5) -> None:
    """Film a short episode that has this score."""
    environment = pong()
    lapse = filmer.begin(environment)
    environment.reset()
    for _ in range(steps):
        lapse.add(environment.pictures)
        environment.step(0)
    filmer.keep(EpisodeRecord(episode=episode, score_saber=int(score)), BEGAN, 7)


def there(store: FilmStore) -> dict[str, FilmInfo]:
    return {place: decode_info(data) for place, data in store.read(("best", "newest"), HEADER_BYTES).items()}


def scores(store: FilmStore) -> tuple[float, float]:
    found = there(store)
    return found["best"].score, found["newest"].score


@pytest.mark.skipif(bool(missing("procgen")), reason=missing("procgen"))
def test_a_film_has_the_speed_of_what_was_drawn(store: FilmStore, filmer: Filmer) -> None:
    # Mutation: divide by the action repeat where one picture is drawn of a step.
    environment = make_environment(EnvironmentSettings(env="procgen:coinrun", record=True), 1)
    with closing(environment):
        environment.action_repeat = 4
        lapse = filmer.begin(environment)
        environment.reset()
        lapse.add(environment.pictures)
    filmer.keep(EpisodeRecord(), BEGAN, 7)
    assert there(store)["newest"].rate == environment.pictures_per_second


def test_the_first_film_is_newest_and_best(store: FilmStore, filmer: Filmer) -> None:
    play(filmer, 5, episode=11)
    films = {place: decode_film(data) for place, data in store.read(("best", "newest"), FILM_BYTES).items()}
    assert films["best"].info == films["newest"].info
    info = films["best"].info
    assert (info.score, info.actor, info.episode, info.step, info.version) == (5, 3, 11, 50, 7)
    assert (info.rate, info.stride, info.pictures, info.height, info.width) == (15, 1, 5, 105, 80)
    assert films["best"].pictures.std() > 1, "it is no black picture"


def test_a_better_one_is_written_at_once_and_a_newer_one_in_time(
    store: FilmStore, filmer: Filmer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: write every episode as the newest, or a best one that is worse.
    for score, expected in ((5, (5, 5)), (4, (5, 5)), (8, (8, 5)), (6, (8, 5))):
        play(filmer, score)
        assert scores(store) == expected
    monkeypatch.setattr(evaluation, "_NEWEST_S", -1)
    filmer._next_newest = 0
    for score, expected in ((3, (8, 3)), (2, (8, 2))):
        play(filmer, score)
        assert scores(store) == expected


def test_another_actor_s_best_stays_and_a_lost_one_is_written_again(store: FilmStore, filmer: Filmer) -> None:
    # Mutation: compare with this actor's own films alone.
    store.write("best", encode_film(film(score=20.0)))
    play(filmer, 10)
    assert scores(store) == (20, 10)
    store.write("best", encode_film(film(score=9.0)))
    play(filmer, 1)
    assert scores(store) == (10, 10), "the other has read before this actor wrote"


def test_what_others_write_there_ends_nothing(
    client: Client, run_name: str, store: FilmStore, filmer: Filmer, capsys: pytest.CaptureFixture[str]
) -> None:
    # Mutation: let FilmError pass.
    keys, noise = Keys(run_name, "id", evaluation=True), random.Random(1).randbytes(300)
    for score, written in enumerate((noise, b""), 1):
        for place in ("best", "newest"):
            client.set(keys.film(place), written)
        filmer._next_newest = 0
        play(filmer, score, steps=2)
        assert scores(store) == (score, score)
    assert capsys.readouterr().out == ""


def test_a_server_that_takes_no_film_is_told_once_and_left_in_peace(
    own_server: RedisServer, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(connect("127.0.0.1", own_server.port)) as client:
        client.execute_command("ACL", "SETUSER", "default", "-set")
        with closing(Filmer(FilmStore(client, "run", "id"), 0)) as filmer:
            play(filmer, 1)
            tried = filmer._next_try
            play(filmer, 2)
            assert filmer._next_try == tried > 0, "not again so soon"
            monkeypatch.setattr(filmer, "_next_try", 0.0)
            own_server.stop()
            play(filmer, 3)
            own_server.start()
            monkeypatch.setattr(filmer, "_next_try", 0.0)
            filmer._next_newest = 0
            play(filmer, 2)
        with closing(FilmStore(client, "run", "id")) as store:
            assert scores(store) == (3, 2), "the restarted server has all rights again"
    assert capfd.readouterr().out.count("Not shown: Redis takes no film of an episode (") == 1

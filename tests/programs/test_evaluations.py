"""What evaluation actors send, as a learner logs it: each score once, whoever dies, and nothing hostile."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.scripts import READ_BYTES
from rainbow_iqn_apex.memory.messages import Episode, Joined, encode_message
from rainbow_iqn_apex.programs.learner import ingest
from rainbow_iqn_apex.programs.learner.ingest import EVALUATION_MESSAGES, Evaluations
from rainbow_iqn_apex.programs.learner.results_folder import ResultsFolder
from rainbow_iqn_apex.saber.results.training_log import EVALUATION_HEADER
from tests.deadline import wait_until

Record = dict[str, int | float | str]
pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("short_reads")]
SCORE: Record = {
    "T_actors": 400, "T_learner": 396, "version": 4, "score_5min": 1.5, "score_30min": 2.0, "score_saber": -2.0,
    "length": 7, "end": "stuck", "episode": 99,  # the log numbers episodes by their place
}  # fmt: skip


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingest, "_INTERVAL_S", 0.0)


@contextmanager
def learner(client: Client, name: str, folder: Path, *, afresh: bool = False) -> Iterator[tuple[LearnerClient, Any]]:
    """The part of a learner that takes scores in."""
    with LearnerClient(client, name, {}, 1, folder=folder) as link, ResultsFolder(folder, "pong", 4) as results:
        link.lead("id", afresh=afresh)
        inbox = link.evaluation_inbox(EVALUATION_MESSAGES, threading.Event())
        with closing(Evaluations(link, results, inbox)) as taken:
            yield link, taken


@contextmanager
def evaluator(client: Client, name: str, number: int) -> Iterator[ActorClient]:
    with ActorClient(client, name, "id", number, threading.Event(), evaluation=True) as link:
        link.saved()
        yield link


def send(link: ActorClient, *scores: float) -> None:
    for score in scores:
        link.commit([Episode(SCORE | {"score_saber": score})], b"")


def lines(folder: Path) -> list[str]:
    path = folder / "pong_evaluation.csv"
    return path.read_text().splitlines()[1:] if path.exists() else []


def take_until(taken: Evaluations, folder: Path, count: int) -> list[str]:
    """Take in until so many lines are logged, and return them."""

    def are_there() -> bool:
        taken.take()
        return len(lines(folder)) >= count

    wait_until(are_there, "the scores", 20)
    return lines(folder)


def told(client: Client, name: str) -> dict[bytes, bytes]:
    record: Any = client.hgetall(Keys(name, "id").run)
    return {name: value for name, value in record.items() if name.startswith(b"evaluated")}


def test_scores_are_logged_and_then_leave_redis(client: Client, run_name: str, tmp_path: Path) -> None:
    # Mutation: number episodes as their actor does.
    keys = Keys(run_name, "id", evaluation=True)
    with learner(client, run_name, tmp_path, afresh=True) as (link, taken):
        taken.take()
        assert not (tmp_path / "pong_evaluation.csv").exists(), "a run without them has no such file"
        with evaluator(client, run_name, 0) as first, evaluator(client, run_name, 11) as other:
            send(first, -2, 5)
            send(other, 0.25)
            found = take_until(taken, tmp_path, 3)
            link.write_progress("running", 0, 0, {}, taken.received)
            assert [first.unread(), other.unread()] == [0, 0]
    assert (tmp_path / "pong_evaluation.csv").read_text().startswith(f"{EVALUATION_HEADER}\n")
    assert sorted(found) == [
        "400,396,0,0,0,1.5,2,-2,7,stuck,4", "400,396,0,0,1,1.5,2,5,7,stuck,4", "400,396,11,0,0,1.5,2,0.25,7,stuck,4",
    ]  # fmt: skip
    assert [client.xlen(keys.log(actor)) for actor in (0, 11)] == [0, 0]
    assert told(client, run_name) == {b"evaluated:0": b"2", b"evaluated:11": b"1"}
    assert not client.keys(Keys(run_name, "id").log(0)), "nothing of theirs is where actors write"


def test_an_episode_is_logged_once_though_its_learner_is_killed_before_it_has_told(
    client: Client, run_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: log whatever comes.
    with monkeypatch.context() as patch, learner(client, run_name, tmp_path, afresh=True) as (_, taken):
        patch.setattr(LearnerClient, "trim", lambda *_, **__: None)  # killed just before, again and again
        with evaluator(client, run_name, 0) as link:
            send(link, 1, 2)
            take_until(taken, tmp_path, 2)
    with evaluator(client, run_name, 0) as link:
        send(link, 3)
    with learner(client, run_name, tmp_path) as (_, taken):
        taken.take_rest()
        assert [line.split(",")[4] for line in lines(tmp_path)] == ["0", "1", "2"]
    assert client.xlen(Keys(run_name, "id", evaluation=True).log(0)) == 0


def test_numbers_go_on_where_redis_has_lost_them(client: Client, run_name: str, tmp_path: Path) -> None:
    # Mutation: a record without what was read of evaluation actors, and the log takes new episodes for old ones.
    keys = Keys(run_name, "id", evaluation=True)
    with learner(client, run_name, tmp_path, afresh=True) as (link, taken):
        with evaluator(client, run_name, 2) as actor:
            send(actor, 1, 2)
            take_until(taken, tmp_path, 2)
            link.write_progress("running", 0, 0, {}, taken.received)
        client.delete(keys.log(2), keys.state(2), keys.actors)  # of a server without a file; the learner tells again
        with evaluator(client, run_name, 2) as actor:
            send(actor, 3)
            assert len(take_until(taken, tmp_path, 3)) == 3


def test_numbers_go_on_after_those_of_the_log_when_redis_has_lost_the_run(
    client: Client, run_name: str, tmp_path: Path
) -> None:
    # Mutation: tell the actors only what was read from Redis.
    with learner(client, run_name, tmp_path, afresh=True) as (_, taken), evaluator(client, run_name, 2) as actor:
        send(actor, 1, 2)
        take_until(taken, tmp_path, 2)
    for key in client.scan_iter(match=f"riqx:{{{run_name}}}*"):
        client.delete(key)
    with learner(client, run_name, tmp_path, afresh=False) as (link, taken):
        link.write_progress("running", 0, 0, {}, taken.received)
        with evaluator(client, run_name, 2) as actor:
            send(actor, 3)
            assert len(take_until(taken, tmp_path, 3)) == 3


def test_a_full_disk_loses_no_score_and_ends_nothing(
    client: Client, run_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Mutation: forget what was taken from the reader, or trim all the same.
    monkeypatch.setattr(ingest, "_RETRY_S", 0.0)
    with learner(client, run_name, tmp_path, afresh=True) as (_, taken), evaluator(client, run_name, 0) as link:
        send(link, 1)
        take_until(taken, tmp_path, 1)
        with monkeypatch.context() as patch:
            patch.setattr("rainbow_iqn_apex.saber.results.training_log._append_bytes", full)
            send(link, 2)
            wait_until(lambda: taken.take() or "No space" in capsys.readouterr().out, "the line", 10)
            send(link, 3)
            taken.take()
            taken.take_rest()
            assert len(lines(tmp_path)) == 1
        assert client.xlen(link.keys.log(0)) == 2, "a successor finds them"
        assert [line.split(",")[7] for line in take_until(taken, tmp_path, 3)] == ["1", "2", "3"]


def full(path: Path, _: bytes) -> None:
    raise OSError(28, "No space left on device", str(path))


HOSTILE = [
    b"", encode_message(Episode(SCORE)) + bytes(READ_BYTES), encode_message(Joined(0)),
]  # fmt: skip


def test_hostile_messages_are_left_out_and_counted(
    client: Client, run_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = Keys(run_name, "id", evaluation=True)
    with learner(client, run_name, tmp_path, afresh=True) as (_, taken), evaluator(client, run_name, 0) as link:
        send(link, 1)
        for data in HOSTILE:
            client.xadd(keys.log(0), {"m": data}, id=f"{_last(client, keys) + 1}-0")
        send(link, 2)  # the actor goes on after them
        found = take_until(taken, tmp_path, 2)
    assert [line.split(",")[4] for line in found] == ["0", str(len(HOSTILE) + 1)]
    assert "of evaluation actor 0: " in (out := capsys.readouterr().out) and f"{len(HOSTILE)} so far" in out
    assert client.xlen(keys.log(0)) == 0


def _last(client: Client, keys: Keys) -> int:
    newest: Any = client.xrevrange(keys.log(0), count=1)
    return int(newest[0][0].split(b"-")[0])


def test_a_key_of_another_type_ends_no_run(
    client: Client, run_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = Keys(run_name, "id", evaluation=True)
    with learner(client, run_name, tmp_path, afresh=True) as (_, taken):
        client.xadd(keys.actors, {"actor": "0"})
        client.set(keys.log(0), "a string")
        wait_until(lambda: taken.take() or "not read any more" in capsys.readouterr().out, "the line", 10)
        taken.take()
        taken.take_rest()
        assert capsys.readouterr().out == "", "it says so once"

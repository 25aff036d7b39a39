"""A whole run in lockstep whose Redis server goes down again and again, or in whose keys somebody else writes.

It ends as if nothing had happened.
"""

import signal
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import redis
import torch

from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.broker.connection import Client, connect
from rainbow_iqn_apex.memory.broker.server_version import unpatched
from rainbow_iqn_apex.memory.broker.transport import Keys
from rainbow_iqn_apex.memory.messages import Episode, Joined, Message, RoundEnd, encode_message
from rainbow_iqn_apex.saber.results.training_log import read_records
from tests import deadline
from tests.conftest import RedisServer
from tests.small import TINY
from tests.system import LEARNER, Run

pytestmark = pytest.mark.redis
OPTIONS = [
    *TINY,
    *"--env chain --game chain --learn-start 400 --memory-capacity 400 --T-max 1500 --log-interval 300".split(),
    *"--weight-synchro-frequency 50 --length-actor-buffer 100".split(),
]
Disturb = Callable[[RedisServer], None]


def run_of(server: RedisServer, folder: Path) -> Run:
    return Run(server.port, "chain", folder, OPTIONS)


def wait_for_weights(port: int) -> None:
    """Until the learner has published versions 0 and 1, and can do nothing more without its actor."""
    with closing(connect("127.0.0.1", port)) as client:
        versions = "riqx:{chain}:*:versions"
        deadline.wait_until(lambda: any(client.xlen(key) == 2 for key in client.keys(versions)), "two versions", 30)


def episodes_of_a_run(server: RedisServer, folder: Path, disturb: Disturb) -> str:
    """Disturb the server before the actor comes and at the learner's log lines; returns the training log."""
    with run_of(server, folder) as run:
        learner = run.start(LEARNER)
        wait_for_weights(server.port)
        disturb(server)
        actor = run.start("0")
        disturbed = waits = 0
        for line in learner.lines():
            waits += "Waiting for actor 0 to play round" in line  # ten seconds each
            assert waits < 4, f"both wait for each other\n{run.last_words()}"
            if " T = " in line and disturbed < 3:
                disturb(server)
                disturbed += 1
        assert disturbed == 3
        assert (learner.finish(10), actor.finish(20)) == (0, 0)
    return (folder / "chain.csv").read_text()


@pytest.fixture(scope="module")
def undisturbed(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    return episodes_of_a_run(redis_server, tmp_path_factory.mktemp("undisturbed"), lambda _: None)


def keep(server: RedisServer) -> None:
    server.stop(signal.SIGKILL)
    server.start()


def lose(server: RedisServer) -> None:
    server.restart_without(since=0)


def fill(server: RedisServer) -> None:
    """No room for anything, for a while."""
    with closing(connect("127.0.0.1", server.port)) as client:
        client.config_set("maxmemory", 1)
        time.sleep(2)
        client.config_set("maxmemory", 0)


def forge(server: RedisServer) -> None:
    """Messages that are well formed, and that no actor can have written; a wrong number in the actor's state."""
    record = asdict(EpisodeRecord(episode=0, length=3, end="game_over"))
    wrong: list[dict[str, Any]] = [
        {"score_saber": 1.7e308}, {"score_saber": -1.7e308}, {"score_5min": 1e15}, {"episode": 2**63 - 1},
        {"episode": 10**12}, {"episode": 10**12}, {"length": 2**62}, {"T_actors": 2**62}, {"env": 1}, {"end": "x" * 99},
    ]  # fmt: skip
    forged: list[Message] = [*(Episode(record | change) for change in wrong), Joined(10**6), RoundEnd(10**6)]
    with closing(connect("127.0.0.1", server.port)) as client:
        (run_id,) = client.hmget("riqx:{chain}", "run_id")
        assert isinstance(run_id, bytes)
        keys = Keys("chain", run_id.decode())
        for data in [*map(encode_message, forged), bytes(20_000_000)]:
            client.xadd(keys.log(0), {"m": data})
        if client.exists(keys.state(0)):
            client.hset(keys.state(0), "sequence", 0)


@pytest.mark.slow
@pytest.mark.parametrize("disturb", [keep, lose, fill, forge])
def test_a_run_survives_restarts(undisturbed: str, own_server: RedisServer, tmp_path: Path, disturb: Disturb) -> None:
    assert undisturbed.count("\n") > 100
    assert episodes_of_a_run(own_server, tmp_path / "results", disturb) == undisturbed


def wait_until(port: int, true: Callable[[Client, str], bool], what: str) -> None:
    """Until something is true of the run's keys, which begin with the given text."""
    with closing(connect("127.0.0.1", port)) as client:

        def is_so() -> bool:
            logs: Any = client.keys("riqx:*:log:0")
            return any(true(client, key.decode().removesuffix("log:0")) for key in logs)

        deadline.wait_until(is_so, what, 60)


def has_played(client: Client, run: str) -> bool:
    return int(client.hget(f"{run}state:0", "sequence") or 0) >= 3


def learner_is_ahead(client: Client, run: str) -> bool:
    """Whether the learner has published the weights after those that the actor needs next."""
    versions: Any = client.xrevrange(f"{run}versions", count=1)
    ((newest, _),) = versions
    state: Any = client.hget(f"{run}state:0", "state")
    return bool(int(newest.split(b"-")[0]) == wire.decode(state).meta["round"] + 1)


def test_a_run_goes_on_when_redis_loses_all_and_an_actor_is_gone(own_server: RedisServer, tmp_path: Path) -> None:
    """The learner has read what nobody else remembers: the new actor has to begin after that."""
    with run_of(own_server, tmp_path / "results") as run:
        learner, lost = run.start(LEARNER), run.start("0")
        wait_until(own_server.port, has_played, "messages of the actor")
        lost.kill()
        own_server.restart_without(since=0)
        code, printed, _ = run.start("0").end()
        assert (learner.finish(20), code) == (0, 0)
    assert "The learner has read messages 1 to " in printed


@pytest.mark.slow
def test_an_actor_that_redis_loses_while_it_starts_begins_after_what_the_learner_has_read(
    own_server: RedisServer, tmp_path: Path
) -> None:
    # Mutation: Actor._begin, which does not wait for the run's record.
    with run_of(own_server, tmp_path / "results") as run:
        learner, first = run.start(LEARNER), run.start("0")
        wait_until(own_server.port, has_played, "messages of the actor")
        first.send(signal.SIGSTOP)
        second = run.start("0")
        second.wait_for("Waiting for the lease of actor 0")
        learner.send(signal.SIGSTOP)
        own_server.restart_without(since=0)
        second.wait_for("Actor 0 plays chain")
        time.sleep(1)  # in which it would read an empty server
        learner.send(signal.SIGCONT)
        second.wait_for("The learner has read messages 1 to ")


@pytest.mark.slow
def test_numbers_that_redis_has_lost_count_for_nothing_after_another_kill(
    own_server: RedisServer, tmp_path: Path
) -> None:
    # Mutation: a learner that notices the loss, but saves nothing before its next checkpoint is due.
    results = tmp_path / "results"
    with run_of(own_server, results) as run:
        learner, _ = run.start(LEARNER), run.start("0")
        wait_until(own_server.port, has_played, "messages of the actor")
        learner.terminate()
        assert learner.finish(30) == 0
    assert counted(results)[0] > 0
    own_server.restart_without(since=0)
    with run_of(own_server, results) as run:
        with redis.Redis(port=own_server.port) as client:
            lines = 2 if unpatched(client.info("server")) else 1  # that it is, and what is wrong
        assert "this server holds nothing of run 'chain'" in run.refusal(LEARNER, lines=lines)
        run.start(LEARNER, "--abandon-other-run")
        deadline.wait_until(lambda: counted(results) == {0: 0}, "a checkpoint that knows of the loss", 60)


@pytest.mark.slow
def test_an_actor_whose_rounds_are_lost_joins_anew(own_server: RedisServer, tmp_path: Path) -> None:
    """The server comes back with a state of the actor whose next round the learner has left behind."""
    # Mutations: `_is_left_behind` that is always False; messages with the numbers that the learner has read already.
    results = tmp_path / "results"
    with run_of(own_server, results) as run:
        learner = run.start(LEARNER)
        wait_for_weights(own_server.port)
        learner.send(signal.SIGSTOP)  # so that the actor has played no more than two rounds
        actor = run.start("0")
        wait_until(own_server.port, has_played, "messages of the actor")
        size = own_server.log.stat().st_size
        learner.send(signal.SIGCONT)
        learner.wait_for(" T = 900 ")
        learner.terminate()
        assert (learner.finish(30), actor.finish(30)) == (0, 0)
    before = read_records(results / "chain.csv")
    own_server.restart_without(since=size)
    with closing(connect("127.0.0.1", own_server.port)) as client:  # as if the run saved as seldom as a longer one
        client.hset("riqx:{chain}", "saves", newest_checkpoint(results)["saves"] - 1)
    with run_of(own_server, results) as run:
        learner, actor = run.start(LEARNER), run.start("0")
        assert (learner.finish(60), actor.finish(20)) == (0, 0)
        printed = actor.output
    assert "The learner has read messages " in printed and "goes on after" not in printed
    records = read_records(results / "chain.csv")
    assert records[: len(before)] == before and len(records) > len(before) + 10
    assert len({record.episode for record in records}) == len(records)


def counted(results: Path) -> dict[int, int]:
    """Return, by actor, the newest message that the newest checkpoint counts."""
    numbers: dict[int, int] = newest_checkpoint(results)["counted"]
    return numbers


def newest_checkpoint(results: Path) -> dict[str, Any]:
    path = max(results.glob("last_model_*.pth"), key=lambda path: int(path.stem.split("_")[-1]))
    content: dict[str, Any] = torch.load(path, weights_only=True)
    return content


@pytest.mark.slow
def test_a_run_goes_on_after_redis_was_away_for_long(undisturbed: str, own_server: RedisServer, tmp_path: Path) -> None:
    with run_of(own_server, tmp_path / "results") as run:
        learner, actor = (run.start(who, change="hasty") for who in (LEARNER, "0"))
        wait_until(own_server.port, has_played, "messages of the actor")
        own_server.stop(signal.SIGKILL)
        assert (learner.finish(100), actor.finish(30)) == (1, 1)
    own_server.start()
    assert episodes_of_a_run(own_server, tmp_path / "results", lambda _: None) == undisturbed


@pytest.mark.slow
def test_a_run_goes_on_after_everything_was_stopped(undisturbed: str, own_server: RedisServer, tmp_path: Path) -> None:
    with run_of(own_server, tmp_path / "results") as run:
        learner, actor = run.start(LEARNER), run.start("0")
        wait_until(own_server.port, has_played, "messages of the actor")
        actor.terminate()
        assert actor.finish(30) == 0
        wait_until(own_server.port, learner_is_ahead, "the learner to go on")
        learner.terminate()
        assert learner.finish(30) == 0
    own_server.stop()
    own_server.start()
    assert episodes_of_a_run(own_server, tmp_path / "results", lambda _: None) == undisturbed

"""A whole run in lockstep whose Redis server comes back with less than it had, while a process starts or is away."""

import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import redis
import torch

from rainbow_iqn_apex.memory.broker.connection import Client, connect
from rainbow_iqn_apex.memory.broker.server_errors import unpatched
from rainbow_iqn_apex.saber.results.training_log import read_records
from tests import deadline
from tests.conftest import RedisServer
from tests.small import TINY
from tests.system import LEARNER, Run

pytestmark = [pytest.mark.redis, pytest.mark.slow]
OPTIONS = [
    *TINY,
    *"--env chain --game chain --learn-start 400 --memory-capacity 400 --T-max 1500 --log-interval 300".split(),
    *"--weight-synchro-frequency 50 --length-actor-buffer 100".split(),
]


def run_of(server: RedisServer, folder: Path) -> Run:
    return Run(server.port, "chain", folder, OPTIONS)


def wait_for_weights(port: int) -> None:
    """Until the learner has published versions 0 and 1, and can do nothing more without its actor."""
    with closing(connect("127.0.0.1", port)) as client:
        versions = "riqx:{chain}:*:versions"
        deadline.wait_until(lambda: any(client.xlen(key) == 2 for key in client.keys(versions)), "two versions", 30)


def wait_until(port: int, true: Callable[[Client, str], bool], what: str) -> None:
    """Until something is true of the run's keys, which begin with the given text."""
    with closing(connect("127.0.0.1", port)) as client:

        def is_so() -> bool:
            logs: Any = client.keys("riqx:*:log:0")
            return any(true(client, key.decode().removesuffix("log:0")) for key in logs)

        deadline.wait_until(is_so, what, 60)


def wait_for_looks(port: int) -> None:
    """Until a process has asked for the run's record three times since the server has begun."""
    with redis.Redis(port=port) as client:

        def looks() -> int:
            return int(client.info("commandstats").get("cmdstat_hmget", {"calls": 0})["calls"])

        deadline.wait_until(lambda: looks() >= 3, "looks")


def has_played(client: Client, run: str) -> bool:
    return int(client.hget(f"{run}state:0", "sequence") or 0) >= 3


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
        wait_for_looks(own_server.port)  # at an empty server
        learner.send(signal.SIGCONT)
        second.wait_for("The learner has read messages 1 to ")
        assert (learner.finish(60), second.finish(60)) == (0, 0)


def test_numbers_that_redis_has_lost_count_for_nothing_after_another_kill(
    own_server: RedisServer, tmp_path: Path
) -> None:
    # Mutation: a learner that notices the loss, but saves nothing before its next checkpoint is due.
    results = tmp_path / "results"
    with run_of(own_server, results) as run:
        learner, _ = run.start(LEARNER), run.start("0")
        learner.wait_for(" T = 600 ")
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

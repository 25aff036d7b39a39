"""What may happen to a run on the chain, beside kills of single processes: it ends with the same bytes."""

import resource
import signal
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple

from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.memory.broker.connection import connect
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.messages import Episode, Joined, Message, RoundEnd, encode_message
from rainbow_iqn_apex.programs import snapshot
from tests.agents.test_checkpoints import Damage, flip, truncate
from tests.conftest import RedisServer
from tests.deadline import wait_until
from tests.memory.test_broker_restart import wait_for_weights
from tests.system import LEARNER, System

RUN = "chain"  # its name


class Disturbance(NamedTuple):
    """What happens to a run, and the change of `tests.chain.changes` that lets it happen soon."""

    happen: Callable[[System, RedisServer], None]
    change: str = "nothing"


# --- to Redis ---


def again_and_again(to_redis: Callable[[RedisServer], None]) -> Disturbance:
    """Let something happen to Redis before the actors come, and at some of the learner's lines."""

    def happen(system: System, server: RedisServer) -> None:
        for actor in actors(system):
            system.processes[actor].send(signal.SIGSTOP)  # while it loads
        wait_for_weights(server.port)
        to_redis(server)
        for actor in actors(system):
            system.processes[actor].send(signal.SIGCONT)
        for lines in (1, 6, 11):
            system.wait_for(LEARNER, "] T = ", lines)
            to_redis(server)

    return Disturbance(happen)


def actors(system: System) -> list[str]:
    return [who for who in system.processes if who != LEARNER]


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
        {"episode": 10**12}, {"episode": 10**12}, {"length": 2**62}, {"T_actors": 2**62}, {"env": 3}, {"end": "x" * 99},
    ]  # fmt: skip
    forged: list[Message] = [*(Episode(record | change) for change in wrong), Joined(10**6), RoundEnd(10**6)]
    with closing(connect("127.0.0.1", server.port)) as client:
        (run_id,) = client.hmget(Keys(RUN, "").run, "run_id")
        assert isinstance(run_id, bytes)
        keys = Keys(RUN, run_id.decode())
        for data in [*map(encode_message, forged), bytes(20_000_000)]:
            client.xadd(keys.log(0), {"m": data})
        if client.exists(keys.state(0)):
            client.hset(keys.state(0), "sequence", 0)


def away_for_long(system: System, server: RedisServer) -> None:
    """All give up, and are started again."""
    system.wait_for(LEARNER, "] T = ")
    server.stop(signal.SIGKILL)
    assert {process.finish(100) for process in system.processes.values()} == {1}, system.last_words()
    server.start()
    for who in system.processes:
        system.start(who)


# --- to everything ---


def stop_all(system: System, server: RedisServer) -> None:
    """Stop the actors, the learner when it can do nothing more, and Redis."""
    system.wait_for(LEARNER, "] T = ")
    for who in actors(system):
        system.processes[who].terminate()
        assert system.processes[who].finish() == 0
    system.wait_for(LEARNER, "Waiting for actor", system.printed(LEARNER).count("Waiting for actor") + 1)
    system.learner.terminate()
    assert system.learner.finish() == 0
    server.stop()
    server.start()
    for who in system.processes:
        system.start(who)


# --- to files ---


def tear_checkpoints(system: System, _: RedisServer) -> None:
    """Kill or stop the learner, and damage its newest checkpoint: it goes on from the one before."""
    torn: list[tuple[int, signal.Signals, Damage]] = [(1000, signal.SIGKILL, flip), (1500, signal.SIGTERM, truncate)]
    for number, (steps, how, damage) in enumerate(torn, 1):
        wait_for_older_checkpoint(system, steps)
        system.restart(LEARNER, how, partial(damage_newest, system, damage))
        system.wait_for(LEARNER, ": going on from the checkpoint before it\n", number)


def damage_newest(system: System, damage: Damage) -> None:
    damage(snapshot.last_models(system.folder, "chain")[0])


def wait_for_older_checkpoint(system: System, steps: int) -> None:
    """Wait until there are two of different steps, the older one beyond `steps`, while the learner gets on."""

    def are_there() -> bool:
        assert system.learner.exit_code is None, system.last_words()
        older = snapshot.last_models(system.folder, "chain")[1:]
        return any(int(path.stem.split("_")[-1]) >= steps for path in older)

    wait_until(are_there, system.last_words, 100, progress=lambda: system.printed(LEARNER))


def fill_disk_at_snapshots(system: System, _: RedisServer) -> None:
    """Snapshots and plots are too large, while the scores still fit."""
    limit(system, size_of_scores(system) + 50_000)
    system.wait_for(LEARNER, "Not written, and tried again in 60 sec: [Errno 27]")
    system.restart(LEARNER, signal.SIGKILL)  # and the newest snapshot is an old one


def fill_disk_at_scores(system: System, _: RedisServer) -> None:
    """Not even a score fits: the learner cannot go on, and its successor does."""
    limit(system, size_of_scores(system) + 10)
    assert system.learner.finish(100) == 1, system.last_words()
    assert "launch_learner.py: " in system.last_words() and "Traceback" not in system.last_words()
    system.start(LEARNER)


def size_of_scores(system: System) -> int:
    """Wait for some scores, and return the size of their file."""

    def sizes() -> list[int]:
        return [size for path in system.folder.glob("*.csv") if (size := path.stat().st_size) > 2000]

    system.learner.wait_until(sizes, "scores", 100)
    return sizes()[0]


def limit(system: System, size: int) -> None:
    """No file of the learner grows beyond this any more: as on a full disk, which needs no disk of our own."""
    resource.prlimit(system.learner.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


OTHERWISE = {
    "Redis loses all": again_and_again(lose),
    "Redis is full": again_and_again(fill),
    "messages are forged": again_and_again(forge),
    "Redis is away for long": Disturbance(away_for_long, "hasty"),
    "all are stopped": Disturbance(stop_all, "impatient"),
    "checkpoints are torn": Disturbance(tear_checkpoints, "hurried"),
    "the disk is full at a snapshot": Disturbance(fill_disk_at_snapshots),
    "the disk is full at a score": Disturbance(fill_disk_at_scores),
}

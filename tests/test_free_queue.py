"""Without lockstep a queue holds its actors back, so that what is learned from is never old."""

import re
import signal
from pathlib import Path

import pytest
import redis

from rainbow_iqn_apex.memory.broker.transport import Keys
from rainbow_iqn_apex.memory.chunk import ChunkId
from rainbow_iqn_apex.programs import snapshot
from tests.deadline import wait_until
from tests.small import CARTPOLE, FREE
from tests.system import LEARNER, System

BATCH, UNROLL, ENVS = 8, 10, 4
OPTIONS = [
    *CARTPOLE,
    *FREE,
    *f"--agent impala --unroll-length {UNROLL} --batch-size {BATCH} --nb-env-per-actor {ENVS} --hidden-size 16".split(),
    *"--memory-capacity 160 --T-max 6000 --weight-synchro-frequency 80 --log-interval 1000".split(),
    *"--evaluation-interval 1000 --learner-threads 1 --disable-cuda".split(),
]
KEPT = 400  # sequences of a table, most of which are far older than what waits
MIX = f"--replay-mix queue:0.5,uniform:0.5:{KEPT} --queue-size 2".split()
# Chunks in the queue, read ahead, unread of each actor (`RateLimiter.max_unread`), and under way.
WAITING = 2 * BATCH + 16 + 2 * (16 + ENVS) + 2 * ENVS


@pytest.mark.slow
@pytest.mark.redis
def test_actors_wait_for_a_learner_that_cannot_keep_up(redis_port: int, run_name: str, tmp_path: Path) -> None:
    # Mutations: take in more than there is room for; read ahead as far as for a replay.
    with System(redis_port, run_name, tmp_path, OPTIONS, actors=2, change="slow") as system:
        system.finish()
        check_waiting(system.printed(LEARNER))


@pytest.mark.redis
@pytest.mark.slow
def test_actors_wait_for_a_mixture_whose_learner_is_resumed(redis_port: int, run_name: str, tmp_path: Path) -> None:
    # Mutations: count the lag of replayed sequences; the room of the tables, where it is the queue's that counts.
    with System(redis_port, run_name, tmp_path, [*OPTIONS, *MIX], actors=2, change="slow") as system:
        system.wait_for(LEARNER, "trained on in the learner's", 3)
        system.restart(LEARNER, signal.SIGTERM)
        system.wait_for(LEARNER, "trained on in the learner's", 5)
        system.restart(LEARNER, signal.SIGKILL)
        system.finish()
        printed = system.printed(LEARNER)
    check_waiting(printed)
    assert printed.count("Learner of run") == 3
    saved = snapshot.load(snapshot.last_models(tmp_path, "CartPole-v1")[0], "test")
    held = [ChunkId(*numbers) for numbers in saved["replay"]["ids"].tolist()]
    assert len(held) >= KEPT, "the table is full"
    assert {name.actor for name in held} == {0, 1}
    assert 6000 <= saved["T_learner"] <= saved["T_actors"], "an update stands for its fresh sequences"


@pytest.mark.redis
@pytest.mark.slow
def test_an_actor_comes_back_whose_messages_are_all_forgotten(redis_port: int, run_name: str, tmp_path: Path) -> None:
    """The learner was resumed meanwhile, so the present one has received no message of that actor."""
    with (
        redis.Redis(port=redis_port, decode_responses=True) as client,
        System(redis_port, run_name, tmp_path, [*OPTIONS, *"--T-max 100000000".split()], actors=2) as system,
    ):
        system.wait_for("0", "T = 2000")
        away = system.processes.pop("0")
        away.terminate()
        assert away.finish() == 0
        keys = Keys(run_name, client.hget(Keys(run_name, "").run, "run_id"))
        wait_until(lambda: client.xlen(keys.log(0)) == 0, system.last_words, 60)
        system.restart(LEARNER, signal.SIGTERM)
        system.wait_for("1", "goes on")
        sent = int(client.hget(keys.state(0), "sequence"))
        system.start("0")
        wait_until(lambda: int(client.hget(keys.state(0), "sequence")) > sent + 40, system.last_words, 60)


@pytest.mark.slow
@pytest.mark.redis
def test_actors_go_on_when_their_messages_are_deleted(redis_port: int, run_name: str, tmp_path: Path) -> None:
    """The learner reads nothing meanwhile, so an actor waits for messages that are gone when the learner goes on."""
    # Mutation: `StreamReader._pass_gone`, which does nothing.
    with (
        redis.Redis(port=redis_port, decode_responses=True) as client,
        System(redis_port, run_name, tmp_path, [*OPTIONS, *"--T-max 100000000".split()], actors=2) as system,
    ):
        system.wait_for("0", "T = 1000")
        waiting = "Waiting for the learner to read this actor's experience"
        before = system.printed("0").count(waiting)
        system.learner.send(signal.SIGSTOP)
        keys = Keys(run_name, client.hget(Keys(run_name, "").run, "run_id"))
        system.wait_for("0", waiting, before + 1)
        with client.pipeline() as at_once:  # the learner may have let the actor go on just before it was stopped
            at_once.hget(keys.state(0), "sequence").xtrim(keys.log(0), maxlen=0, approximate=False)
            sent, trimmed = map(int, at_once.execute())
        assert trimmed > 0
        system.learner.send(signal.SIGCONT)
        wait_until(lambda: int(client.hget(keys.state(0), "sequence")) > sent + 40, system.last_words, 60)
        assert re.search(rf"messages have gone .* the newest are \d+ to {sent} of actor 0\n", system.printed(LEARNER))


def check_waiting(printed: str) -> None:
    counts = re.findall(r"lines \((\d+)\), trained on in the learner's \((\d+)\)", printed)
    assert len(counts) >= 4
    ahead = [int(played) - int(trained) for played, trained in counts[1:]]
    assert 0 <= max(ahead) <= WAITING * UNROLL, ahead
    lags = [float(lag) for lag in re.findall(r"lag ([\d.]+),", printed)]
    assert len(lags) >= 4 and max(lags) <= WAITING / BATCH + 2, lags

"""Without lockstep a queue holds its actors back, so that what is learned from is never old."""

import re
import signal
from pathlib import Path

import pytest

from rainbow_iqn_apex.memory.chunk import ChunkId
from rainbow_iqn_apex.programs import snapshot
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


def check_waiting(printed: str) -> None:
    counts = re.findall(r"lines \((\d+)\), trained on in the learner's \((\d+)\)", printed)
    assert len(counts) >= 4
    ahead = [int(played) - int(trained) for played, trained in counts[1:]]
    assert 0 <= max(ahead) <= WAITING * UNROLL, ahead
    lags = [float(lag) for lag in re.findall(r"lag ([\d.]+),", printed)]
    assert len(lags) >= 4 and max(lags) <= WAITING / BATCH + 2, lags

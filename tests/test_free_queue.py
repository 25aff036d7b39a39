"""Without lockstep a queue holds its actors back, so that what is learned from is never old."""

import re
from pathlib import Path

import pytest

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
WAITING = 2 * BATCH + 16 + 2 * 16 + 2 * ENVS  # chunks: in the queue, read ahead, unread of each actor, under way


@pytest.mark.redis
def test_actors_wait_for_a_learner_that_cannot_keep_up(redis_port: int, run_name: str, tmp_path: Path) -> None:
    # Mutations: take in more than there is room for; read ahead as far as for a replay.
    with System(redis_port, run_name, tmp_path, OPTIONS, actors=2, launch="launch_slow") as system:
        system.finish()
        printed = system.printed(LEARNER)
    counts = re.findall(r"lines \((\d+)\), trained on in the learner's \((\d+)\)", printed)
    assert len(counts) >= 4
    ahead = [int(played) - int(trained) for played, trained in counts[1:]]
    assert 0 <= max(ahead) <= WAITING * UNROLL, ahead
    lags = [float(lag) for lag in re.findall(r"lag ([\d.]+),", printed)]
    assert len(lags) >= 4 and max(lags) <= WAITING / BATCH + 2, lags

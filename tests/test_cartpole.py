"""The whole system on a task of Gymnasium: a learner and an actor learn to balance a pole for all of 500 steps."""

import os
from pathlib import Path

import numpy as np
import pytest

from tests.deadline import wait_until
from tests.system import LEARNER, Run

SOLVED, EPISODES = 475, 100  # CartPole-v1 counts as solved by this mean score of so many episodes in a row
PATIENCE_S = 1200  # several times as long as it takes on two cores that nobody else uses
# Much noise, or the pole stands while the cart rolls off the track, and nothing better is ever found. Five steps and
# frequent target updates, as a value of 100 is handed on by n rewards per target update.
SETTINGS = (
    "--env gymnasium:CartPole-v1 --history-length 1 --reward-clip 0 --multi-step 5 --hidden-size 128 --noisy-std 0.5 "
    "--num-tau-samples 8 --num-tau-prime-samples 8 --num-quantile-samples 8 --lr-IQN 1e-3 --adam-eps-IQN 1e-5 "
    "--batch-size 64 --learn-start 1000 --memory-capacity 50000 --replay-frequency 2 --target-update 100 "
    "--weight-synchro-frequency 100 --T-max 120000 --log-interval 10000 --learner-threads 1 --disable-cuda"
).split()


def best_mean(folder: Path) -> float:
    """The best mean score of EPISODES training episodes in a row, by the training log as far as it is written."""
    logs = list(folder.glob("*.csv"))
    lines = logs[0].read_text().splitlines() if logs else []
    if len(lines) <= EPISODES:
        return 0.0
    columns = lines[0].split(",")
    rows = [line.split(",") for line in lines[1:]]
    if len(rows[-1]) < len(columns):
        del rows[-1]  # still being written
    scores = np.array([float(row[columns.index("score_saber")]) for row in rows])
    return float(np.convolve(scores, np.ones(EPISODES) / EPISODES, "valid").max(initial=0))


def processor_time_of_children() -> float:
    """Seconds, of those that have ended."""
    times = os.times()
    return times.children_user + times.children_system


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.timeout(3 * PATIENCE_S)
def test_rainbow_iqn_balances_the_pole(redis_port: int, run_name: str, tmp_path: Path) -> None:
    before = processor_time_of_children()
    with Run(redis_port, run_name, tmp_path, SETTINGS) as run:
        learner, actor = run.start(LEARNER), run.start("0")
        wait_until(
            lambda: learner.exit_code is not None or best_mean(tmp_path) >= SOLVED, "a balanced pole", PATIENCE_S
        )
        learner.terminate()  # which sends the actor home as well
        assert (learner.finish(30), actor.finish(30)) == (0, 0)
    assert best_mean(tmp_path) >= SOLVED
    assert processor_time_of_children() - before < 480, "a few minutes; three is usual"

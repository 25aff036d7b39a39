"""The first run of a newcomer learns: the script's default game, with the settings of a machine without a GPU."""

import os
from pathlib import Path

import numpy as np
import pytest

from rainbow_iqn_apex.saber.results.training_log import read_records
from tests.deadline import wait_until
from tests.system import LEARNER, Run

# Random play scores 163, and a mean of so many of its episodes has a standard error of 10 or so.
LEARNED, EPISODES = 220, 100
PATIENCE_S = 600  # ten minutes, several times as long as it takes on two cores that nobody else uses
SETTINGS = "--preset cpu --T-max 200000 --log-interval 10000 --evaluation-interval 1000000 --disable-cuda".split()


def best_mean(folder: Path) -> float:
    """The best mean score of EPISODES training episodes in a row, by the training log as far as it is written."""
    scores = [record.score_saber for log in folder.glob("*.csv") for record in read_records(log)]
    if len(scores) < EPISODES:
        return 0.0
    return float(np.convolve(scores, np.ones(EPISODES) / EPISODES, "valid").max())


def processor_time_of_children() -> float:
    """Seconds, of those that have ended."""
    times = os.times()
    return times.children_user + times.children_system


@pytest.mark.redis
@pytest.mark.slow
@pytest.mark.timeout(3 * PATIENCE_S)
def test_space_invaders_is_learned_within_ten_minutes(redis_port: int, run_name: str, tmp_path: Path) -> None:
    # Mutation: with a learning rate of 0 the mean is 49.
    before = processor_time_of_children()
    with Run(redis_port, run_name, tmp_path, SETTINGS) as run:
        learner, actor = run.start(LEARNER), run.start("0")
        wait_until(lambda: learner.exit_code is not None or best_mean(tmp_path) >= LEARNED, "a better mean", PATIENCE_S)
        learner.terminate()  # which sends the actor home as well
        assert (learner.finish(60), actor.finish(60)) == (0, 0)
    assert best_mean(tmp_path) >= LEARNED
    assert processor_time_of_children() - before < 2 * PATIENCE_S, "ten minutes of two cores"

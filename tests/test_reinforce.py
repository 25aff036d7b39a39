"""The example of docs/agents.md: a whole run of an agent that takes turns with its actors."""

import re
from pathlib import Path

import pytest

from rainbow_iqn_apex.saber.results.training_log import read_records
from tests.small import CARTPOLE
from tests.system import LEARNER, Run, System

OPTIONS = [
    *CARTPOLE,
    *"--agent reinforce --nb-env-per-actor 8 --T-max 60000 --weight-synchro-frequency 320".split(),
    *"--log-interval 20000 --evaluation-interval 20000 --learner-threads 1 --disable-cuda".split(),
]


@pytest.mark.slow
@pytest.mark.redis
def test_reinforce_learns_cartpole_on_policy(redis_port: int, run_name: str, tmp_path: Path) -> None:
    # A random policy keeps the pole up for 22 steps.
    with System(redis_port, run_name, tmp_path, OPTIONS) as system:
        result = system.finish()
        lags = re.findall(r"lag (\S+),", system.printed(LEARNER))
    assert len(result.values) == 3 and set(lags) == {"0.0000"}, "acted with the very weights that learn from it"
    (log,) = tmp_path.glob("*.csv")
    scores = [record.score_saber for record in read_records(log)]
    assert sum(scores[-50:]) / 50 > 66


def test_a_learner_is_no_evaluation_actor(tmp_path: Path) -> None:
    with Run(1, "run", tmp_path, OPTIONS) as run:
        why = "--id-eval-actor: expected in an evaluation actor alone; leave it out, this is the learner"
        assert run.refusal(LEARNER, "--id-eval-actor", "0") == f"launch_learner.py: error: {why}\n"

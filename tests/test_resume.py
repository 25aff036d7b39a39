"""Lockstep: the same seed gives the same run, whatever is killed or stopped on the way."""

import random
import signal
import time
from pathlib import Path

import pytest

from tests.system import LEARNER, System
from tests.test_chain import SETTINGS

OPTIONS = (
    f"{' '.join(SETTINGS)} --nb-env-per-actor 3 --learn-start 900 --T-max 3000 "
    "--evaluation-interval 1000 --log-interval 50 --learner-threads 1"
).split()


@pytest.mark.redis
@pytest.mark.slow
def test_kills_and_stops_leave_no_trace_in_the_result(redis_port: int, run_name: str, tmp_path: Path) -> None:
    results = {}
    for case, kills in {"undisturbed": 0, "disturbed": 6}.items():
        system = System(redis_port, f"{run_name}_{case}", tmp_path / case, OPTIONS, actors=2)
        dice = random.Random(1)
        try:
            for kill in range(kills):
                time.sleep(dice.uniform(2, 4))
                if system.processes[LEARNER].poll() is None:
                    who = ("0", LEARNER, "1")[kill % 3]
                    system.restart(who, signal.SIGKILL if kill < 3 else signal.SIGTERM)
            results[case] = system.finish()
        finally:
            system.kill()
    assert results["disturbed"].weights == results["undisturbed"].weights
    assert results["disturbed"].scores == results["undisturbed"].scores
    lines = results["disturbed"].scores.decode().splitlines()[1:]
    keys = [tuple(line.split(",")[2:5]) for line in lines]
    assert len(set(keys)) == len(keys), "no episode twice"
    for env in {key[:2] for key in keys}:
        numbers = [int(key[2]) for key in keys if key[:2] == env]
        assert numbers == list(range(len(numbers))), "and none missing"
    assert results["disturbed"].best == results["undisturbed"].best

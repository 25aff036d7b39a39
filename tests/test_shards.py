"""Whole runs in several shards: the learner's bytes are those of one."""

import json
from pathlib import Path

import pytest

from tests.processes import run
from tests.small import SHORT_CHAIN
from tests.system import EVALUATORS, LEARNER, Result, System

pytestmark = pytest.mark.redis
OPTIONS = [*SHORT_CHAIN, *"--T-max 1500 --log-interval 100 --nb-eval-actors 2".split()]


def healthy(port: int, name: str) -> set[tuple[str, int]]:
    """Return the processes of a run as `run_status.py` finds them."""
    _, output, _ = run("run_status.py", "--port-redis", str(port), "--run-name", name, "--json", seconds=60)
    (found,) = json.loads(output)["runs"]
    return {(process["role"], process["number"]) for process in found["processes"] if process["metrics"]}


@pytest.mark.slow
def test_lockstep_is_the_same_in_one_shard_and_in_several(redis_port: int, run_name: str, tmp_path: Path) -> None:
    # Mutations: shards in the seeds; a reader that hands messages out as they come.
    results: dict[int, Result] = {}
    for shards in (1, 2, 3):
        name, folder = f"{run_name}_{shards}", tmp_path / str(shards)
        options = [*OPTIONS, "--redis-shards", str(shards)]
        with System(redis_port, name, folder, options, actors=3) as system:
            for evaluator in EVALUATORS[:2]:
                system.start(evaluator)
            system.wait_for(LEARNER, "] T = 700 ")
            expected = {("learner", 0), *(("actor", i) for i in range(3)), *(("evaluation actor", i) for i in range(2))}
            assert healthy(redis_port, name) == expected
            results[shards] = system.finish()
    assert results[1] == results[2] == results[3]

"""Whole runs in lockstep, in several shards and on a cluster whose masters die and whose slots move: equal bytes."""

import json
from pathlib import Path

import pytest

from rainbow_iqn_apex.memory.broker.keys import Keys
from tests.cluster import Cluster, started
from tests.deadline import wait_until
from tests.processes import run
from tests.small import SHORT_CHAIN
from tests.system import EVALUATORS, LEARNER, Result, System

pytestmark = pytest.mark.redis
OPTIONS = [*SHORT_CHAIN, *"--learn-start 400 --T-max 1800 --log-interval 100".split()]
SHARDS = 3


def healthy(port: int, name: str) -> set[tuple[str, int]]:
    """Return the processes of a run as `run_status.py` finds them."""
    _, output, _ = run("run_status.py", "--port-redis", str(port), "--run-name", name, "--json", seconds=60)
    (found,) = json.loads(output)["runs"]
    return {(process["role"], process["number"]) for process in found["processes"] if process["metrics"]}


def on_one_server(port: int, name: str, folder: Path, shards: int) -> Result:
    """Play with evaluation actors, all of whom `run_status.py` finds."""
    options = [*OPTIONS, "--redis-shards", str(shards), "--nb-eval-actors", "2"]
    with System(port, name, folder, options, actors=3, change="held") as system:
        for evaluator in EVALUATORS[:2]:
            system.start(evaluator)
        system.wait_for(LEARNER, "] T = 700 ")
        expected = {("learner", 0), *(("actor", i) for i in range(3)), *(("evaluation actor", i) for i in range(2))}
        wait_until(lambda: healthy(port, name) == expected, system.last_words, 60)
        (folder / "go").touch()
        return system.finish()


def disturbed(cluster: Cluster, name: str, folder: Path) -> Result:
    """Let two masters die and two slots move, each after some steps of the run; it ends when all this has happened."""
    first, second, _ = Keys(name, "", shards=SHARDS).every_shard()
    options = [*OPTIONS, "--redis-shards", str(SHARDS), "--redis-url", cluster.url]
    with System(0, name, folder, options, actors=3, change="held") as system:
        system.wait_for(LEARNER, "] T = 500 ")
        code, shown, errors = run("run_status.py", "--redis-url", cluster.url, "--run-name", name)
        assert all(f"actor {actor} " in shown for actor in range(3)), (code, shown, errors)
        cluster.fail_over(first.run)
        system.wait_for(LEARNER, "] T = 800 ")
        for keys in (first, Keys(name, "")):
            for _ in cluster.move(keys.run):
                pass
        system.wait_for(LEARNER, "] T = 1100 ")
        cluster.fail_over(second.run)
        (folder / "go").touch()
        return system.finish()


@pytest.mark.slow
def test_lockstep_is_the_same_in_shards_and_on_a_cluster_that_fails_over(
    redis_port: int, run_name: str, tmp_path: Path
) -> None:
    # Mutations: a client that raises MOVED; no messages that are sent again; weights that are not published again;
    # shards in the seeds; a reader that hands messages out as they come.
    undisturbed, sharded = (
        on_one_server(redis_port, f"{run_name}_{shards}", tmp_path / str(shards), shards) for shards in (1, 2)
    )
    assert sharded == undisturbed
    with started(Cluster(tmp_path / "nodes", "")) as cluster:
        assert disturbed(cluster, run_name, tmp_path / "cluster") == undisturbed

"""The start script with the real programs, in several shards: on a cluster that fails over, and on its own server."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rainbow_iqn_apex.memory.broker.keys import Keys
from tests.cluster import Cluster, started
from tests.processes import ROOT, Process, Processes, clean_environment, run
from tests.servers import BUNDLED
from tests.small import ENDLESS
from tests.start_script import free_port, get_on, is_listening

pytestmark = [pytest.mark.redis, pytest.mark.slow]
ACTORS = 3
OPTIONS = [*ENDLESS, *"--redis-shards 3 --nb-actor 3 --windows none".split()]


@contextmanager
def script(processes: Processes, folder: Path, name: str, *address: str) -> Iterator[Process]:
    """Start the script, and stop it in the end, in good order."""
    words = [*OPTIONS, *address, "--run-name", name, "--path-to-results", folder]
    environment = clean_environment() | {"RAINBOW_VENV": sys.prefix}
    place = ROOT / "start_learning_atari.sh"
    process = processes.start(place, *words, program="bash", environment=environment, together=True)
    process.wait_for("[learner] Learner of run", seconds=120)
    yield process
    process.press_ctrl_c()
    assert process.finish(120) == 0, process.output[-3000:]
    assert "all is stopped and saved" in process.output and "Traceback" not in process.output


def test_the_start_script_on_a_cluster(tmp_path: Path, processes: Processes, run_name: str) -> None:
    # Mutation: an address of one server for actors or learner; it ends when a master is gone.
    with started(Cluster(tmp_path / "nodes", BUNDLED)) as cluster:
        address = ("--redis-url", cluster.url)
        with script(processes, tmp_path / "results", run_name, *address) as process:
            get_on(process)
            shown = run("run_status.py", *address, "--run-name", run_name).out
            assert all(f"actor {actor} " in shown for actor in range(ACTORS)), shown
            cluster.fail_over(Keys(run_name, "", shards=ACTORS).run)
            reached = get_on(process)
            assert "is started again" not in process.output
        with script(processes, tmp_path / "results", run_name, *address) as process:
            assert get_on(process) > reached


def test_the_start_script_in_shards_of_its_own_server(tmp_path: Path, processes: Processes, run_name: str) -> None:
    port = free_port()
    reached = 0
    for _ in range(2):
        with script(processes, tmp_path / "results", run_name, "--port-redis", str(port)) as process:
            before, reached = reached, get_on(process)
            assert reached > before
    assert not is_listening(port)

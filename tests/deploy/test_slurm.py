"""deploy/slurm/run.sbatch on a real Slurm: stopped, requeued and robbed of an actor, a run gives the same bytes."""

import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.slurm import KILL_WAIT_S, Cluster, MissingError, unpack
from tests.processes import ROOT, Processes
from tests.small import CARTPOLE, TINY
from tests.start_script import free_port

pytestmark = pytest.mark.slow
RECIPE = ROOT / "deploy" / "slurm" / "run.sbatch"
ACTORS = 2
OPTIONS = [
    *CARTPOLE,
    *TINY,
    *"--learn-start 400 --memory-capacity 20000 --replay-frequency 8 --weight-synchro-frequency 100".split(),
    *"--evaluation-interval 1000 --log-interval 200 --learner-threads 1".split(),
]
STEPS = 9000
FINISHED = r"Finished at T = \d+, weights ([0-9a-f]{16})\n"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    cache = request.config.cache
    assert cache
    try:
        programs = unpack(cache.mkdir("slurm"))
    except MissingError as missing:
        pytest.skip(str(missing))
    with Cluster(tmp_path_factory.mktemp("slurm") / "cluster", programs) as cluster:
        yield cluster


class Job:
    """A run of the recipe, and what it leaves in its folder."""

    def __init__(self, cluster: Cluster, results: Path, steps: int, **variables: object) -> None:
        self.results = results
        self._cluster = cluster
        self._port = free_port()
        sizes: dict[str, object] = {
            "RUN": "pole",
            "RESULTS": results,
            "ACTORS": ACTORS,
            "LEARNER_PARTITION": "gpu",
            "LEARNER_CPUS": 2,
            "ACTOR_PARTITION": "cpu",
            "REDIS_HOST": "localhost",
            "REDIS_PORT": self._port,
            "RAINBOW_VENV": sys.prefix,
        }
        self.number = cluster.submit(RECIPE, *OPTIONS, "--T-max", str(steps), **sizes | variables)

    def text(self, name: str) -> str:
        path = self.results / f"{name}.log"
        return path.read_text() if path.exists() else ""

    def wait_for(self, name: str, text: str, times: int = 1, seconds: float = 200) -> None:
        """Wait until a text has been written so many times into a log."""
        self._cluster.wait_until(
            lambda: self.text(name).count(text) >= times, f"{text!r} in {name}.log\n{self.last_words()}", seconds
        )

    def wait_for_steps(self) -> None:
        """Wait until the learner has logged progress once more."""
        self.wait_for("learner", "] T = ", times=self.text("learner").count("] T = ") + 1)

    def last_words(self) -> str:
        return "\n".join(f"--- {log.name}:\n{log.read_text()[-1500:]}" for log in sorted(self.results.glob("*.log")))

    def record(self) -> dict[str, object]:
        """Ask the run's own record by run_status.py, as the viewer whom the recipe has made."""
        words = (self.results / "access" / "viewer.env").read_text().split()
        user = dict(word.split("=", 1) for word in words if "=" in word)
        with Processes() as processes:
            asking = processes.start(
                "run_status.py", "--json", "--port-redis", self._port, environment=self._cluster.environment | user
            )
            _, out, errors = asking.end()
        assert not errors
        (found,) = json.loads(out)["runs"]
        return dict(found)


def test_a_requeued_run_gives_the_bytes_of_an_undisturbed_one(
    cluster: Cluster, tmp_path: Path, redis_port: int
) -> None:
    # Mutations: Redis that SIGTERM reaches; no --kill-on-bad-exit; a batch script that dies of SIGTERM.
    job = Job(cluster, tmp_path / "results", STEPS)
    job.wait_for_steps()
    learner_on, actors_on = cluster.nodes(job.number)
    assert learner_on == "n1" != actors_on
    assert (job.record()["status"], job.record()["failure"]) == ("running", "")
    # A task is killed: the others leave and come back with it.
    (actor,) = cluster.tasks("--id-actor 1 ")
    actor.send_signal(signal.SIGKILL)
    for number in range(ACTORS):
        job.wait_for(f"actor-{number}", "goes on after")
    job.wait_for_steps()
    # A node is drained: what runs there goes on, and a requeued job gets another one.
    cluster.run("scontrol", "update", f"NodeName={actors_on}", "State=DRAIN", "Reason=test")
    job.wait_for_steps()
    cluster.run("scontrol", "requeue", job.number)
    job.wait_for("slurm", "the learner has ended with exit code 0", seconds=KILL_WAIT_S)  # else it would be killed
    cluster.start_now(job.number)
    assert actors_on not in cluster.nodes(job.number)
    cluster.run("scontrol", "update", f"NodeName={actors_on}", "State=RESUME")
    job.wait_for_steps()
    # Its time is over: the steps get the signal that --signal names, and the recipe requeues the job itself.
    cluster.run("scancel", "--signal=TERM", job.number)
    job.wait_for("slurm", "the run goes on in the next job")
    cluster.start_now(job.number)
    cluster.wait_until(lambda: not cluster.states(job.number), f"the end of the job\n{job.last_words()}", 300)
    assert "the run has finished" in job.text("slurm")
    assert [job.text("learner").count(line) for line in ("Stopped at", "Resuming from", "Finished at")] == [2, 2, 1]
    assert "Traceback" not in job.last_words()
    assert bytes_of(job.results, job.text("learner")) == undisturbed(tmp_path / "undisturbed", redis_port)


def undisturbed(folder: Path, port: int) -> tuple[str, bytes]:
    """Return what the same settings give as plain processes that nothing happens to."""
    common = [*OPTIONS, "--T-max", STEPS, "--nb-actor", ACTORS, "--port-redis", port, "--path-to-results", folder]
    with Processes() as processes:
        learner = processes.start("launch_learner.py", *common, "--run-name", "undisturbed")
        for number in range(ACTORS):
            processes.start("launch_actor.py", *common, "--run-name", "undisturbed", "--id-actor", number)
        assert learner.finish(300) == 0, processes.last_words()
        return bytes_of(folder, learner.output)


def bytes_of(results: Path, printed: str) -> tuple[str, bytes]:
    """Return the weights' hash, as the learner prints it at its end, and the training log."""
    (weights,) = re.findall(FINISHED, printed)
    return weights, (results / "CartPole-v1.csv").read_bytes()


def test_the_end_of_its_time_requeues_a_job_and_scancel_ends_it(cluster: Cluster, tmp_path: Path) -> None:
    # Mutations: no --signal; a recipe that requeues itself whatever has stopped it.
    job = Job(cluster, tmp_path / "results", 10**6, TIME_LIMIT=3)  # so --signal=TERM@120 comes within a minute
    job.wait_for("learner", "Stopping: saving what there is")
    job.wait_for("slurm", "the run goes on in the next job")
    cluster.start_now(job.number)
    job.wait_for("learner", "Learner of run", times=2)
    cluster.run("scancel", job.number)
    cluster.wait_until(lambda: not cluster.states(job.number), "the end of the job")
    job.wait_for("slurm", "the learner has ended with exit code 0", times=2, seconds=KILL_WAIT_S)
    assert job.text("slurm").count("the run goes on in the next job") == 1


def test_a_wrong_option_ends_the_job(cluster: Cluster, tmp_path: Path) -> None:
    job = Job(cluster, tmp_path / "results", 0)
    cluster.wait_until(lambda: not cluster.states(job.number), f"the end of the job\n{job.last_words()}")
    assert "launch_learner.py: error: --T-max" in job.text("learner")
    assert job.text("slurm").count("the learner has ended with exit code 2") == 1

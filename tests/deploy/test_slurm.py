"""deploy/slurm/run.sbatch on a real Slurm: stopped, requeued and robbed of an actor, a run gives the same bytes."""

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import RedisServer
from tests.deploy.slurm import KILL_WAIT_S, Cluster, MissingError, unpack
from tests.memory.test_redis_users import make_users
from tests.processes import ROOT, Processes, clean_environment, run
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
    *"--priority-weight 1".split(),  # nothing but the end depends on --T-max then
]
ROUND = 100  # agent steps
ENDLESS = 10**6
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
        self.port = free_port()
        self._cluster = cluster
        sizes: dict[str, object] = {
            "RUN": "pole",
            "RESULTS": results,
            "ACTORS": ACTORS,
            "LEARNER_PARTITION": "gpu",
            "LEARNER_CPUS": 2,
            "ACTOR_PARTITION": "cpu",
            "REDIS_HOST": "localhost",
            "REDIS_PORT": self.port,
            "RAINBOW_VENV": sys.prefix,
        }
        self.number = cluster.submit(RECIPE, *OPTIONS, "--T-max", str(steps), **sizes | variables)

    def wait_for_end(self) -> None:
        """Wait until no part of it is left in the queue."""
        self._cluster.wait_until(
            lambda: not self._cluster.states(self.number), f"the end of the job\n{self.last_words()}", 300
        )

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
                "run_status.py", "--json", "--port-redis", self.port, environment=self._cluster.environment | user
            )
            _, out, errors = asking.end()
        assert not errors
        (found,) = json.loads(out)["runs"]
        return dict(found)


def test_a_requeued_run_gives_the_bytes_of_an_undisturbed_one(
    cluster: Cluster, tmp_path: Path, redis_port: int
) -> None:
    # Mutations: Redis that SIGTERM reaches; no --kill-on-bad-exit; a batch script that dies of SIGTERM.
    job = Job(cluster, tmp_path / "results", ENDLESS)
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
    job.wait_for_steps()
    # The job is cancelled, and the next one ends where the machine's speed has decided.
    cluster.run("scancel", job.number)
    job.wait_for_end()
    *_, stopped = re.findall(r"Stopped at T = (\d+)", job.text("learner"))
    steps = (int(stopped) // ROUND + 10) * ROUND
    Job(cluster, job.results, steps, REDIS_PORT=job.port).wait_for_end()
    assert "the run has finished" in job.text("slurm"), job.last_words()
    assert [job.text("learner").count(line) for line in ("Stopped at", "Resuming from", "Finished at")] == [3, 3, 1]
    assert "Traceback" not in job.last_words()
    assert bytes_of(job.results, job.text("learner")) == undisturbed(tmp_path / "undisturbed", redis_port, steps)


def undisturbed(folder: Path, port: int, steps: int) -> tuple[str, bytes]:
    """Return what the same settings give as plain processes that nothing happens to."""
    common = [*OPTIONS, "--T-max", steps, "--nb-actor", ACTORS, "--port-redis", port, "--path-to-results", folder]
    with Processes() as processes:
        learner = processes.start("launch_learner.py", *common, "--run-name", "undisturbed")
        for number in range(ACTORS):
            processes.start("launch_actor.py", *common, "--run-name", "undisturbed", "--id-actor", number)
        assert learner.finish(600) == 0, processes.last_words()
        return bytes_of(folder, learner.output)


def bytes_of(results: Path, printed: str) -> tuple[str, bytes]:
    """Return the weights' hash, as the learner prints it at its end, and the training log."""
    (weights,) = re.findall(FINISHED, printed)
    return weights, (results / "CartPole-v1.csv").read_bytes()


def test_the_end_of_its_time_requeues_a_job_and_scancel_ends_it(cluster: Cluster, tmp_path: Path) -> None:
    # Mutations: no --signal; a recipe that requeues itself whatever has stopped it.
    job = Job(cluster, tmp_path / "results", ENDLESS, TIME_LIMIT=3)  # so --signal=TERM@120 comes within a minute
    job.wait_for("learner", "Stopping: saving what there is")
    job.wait_for("slurm", "the run goes on in the next job")
    cluster.start_now(job.number)
    job.wait_for("learner", "Learner of run", times=2)
    cluster.run("scancel", job.number)
    job.wait_for_end()
    job.wait_for("slurm", "the learner has ended with exit code 0", times=2, seconds=KILL_WAIT_S)
    assert job.text("slurm").count("the run goes on in the next job") == 1


def test_a_wrong_option_ends_the_job(cluster: Cluster, tmp_path: Path) -> None:
    job = Job(cluster, tmp_path / "results", 0)
    job.wait_for_end()
    assert "launch_learner.py: error: --T-max" in job.text("learner")
    assert job.text("slurm").count("the learner has ended with exit code 2") == 1


def test_a_server_elsewhere_and_a_gpu_for_the_learner_alone(cluster: Cluster, tmp_path: Path) -> None:
    """The server has users and passwords, and belongs to no job. The GPU is one that only Slurm's controller counts."""
    # Mutations: a recipe that starts its own server all the same; one that asks for the GPU for both parts.
    users = make_users(tmp_path / "access", "--redis-7")
    server = RedisServer(tmp_path, append_only=True, more={"aclfile": tmp_path / "access" / "users.acl"})
    server.start()
    try:
        url = {"REDIS_URL": f"redis://localhost:{server.port}", **users["learner"]}
        job = Job(cluster, tmp_path / "results", 2000, LEARNER_GPUS=1, **url)
        parts = sorted(cluster.run("squeue", "-h", "-o", "%i %P %b", "-j", job.number).splitlines())
        assert [part.split()[1:] for part in parts] == [["gpu", "gres:gpu:1"], ["cpu", "N/A"]]
        job.wait_for_end()
    finally:
        server.close()
    assert "the run has finished" in job.text("slurm") and "Finished at" in job.text("learner"), job.last_words()
    assert not {"access", "redis.log"} & {path.name for path in job.results.iterdir()}
    assert users["learner"]["REDIS_PASSWORD"] not in job.last_words()


STAND_INS = {
    "srun": """[[ "$*" == *launch_learner.py* ]] || exit 0
echo "${RAINBOW_HAS_WORKED:-}" >>"$RESULTS/learner"
[[ $(wc -l <"$RESULTS/learner") == 5 ]]""",
    "scancel": "",
    "venv/bin/python": """echo '"status": "finished"'""",
}


def test_a_learner_that_has_worked_is_given_time(tmp_path: Path) -> None:
    """Without Slurm: stand-ins of its programs, of which the learner fails four times."""
    # Mutation: three tries however long the run has worked, as of a job that was requeued.
    for name, text in STAND_INS.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/usr/bin/env bash\n{text}\n")
        path.chmod(0o755)
    job = {"JOB_ID": 1, "HET_SIZE": 2, "NTASKS_HET_GROUP_1": 1, "RESTART_COUNT": 1}
    job |= {f"CPUS_PER_TASK_HET_GROUP_{part}": 1 for part in range(2)}
    variables = {f"SLURM_{name}": str(value) for name, value in job.items()} | {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "RAINBOW_VENV": str(tmp_path / "venv"),
        "REDIS_URL": "redis://elsewhere:1",
        "RESULTS": str(tmp_path / "results"),
    }
    with Processes() as processes:
        job_script = processes.start(RECIPE, program="bash", environment=clean_environment() | variables, together=True)
        assert job_script.finish(300) == 0, job_script.output
        assert "try 5 of 20" in job_script.output and "the run has finished" in job_script.output
    assert (tmp_path / "results" / "learner").read_text() == "yes\n" * 5


def test_an_array_of_a_sweep_goes_on_after_scancel_and_the_end_of_its_time(cluster: Cluster, tmp_path: Path) -> None:
    # Mutation: a start script whose Redis server SIGTERM reaches: the learner cannot save.
    options = "{preset: cpu, T-max: 40000, log-interval: 400, hidden-size: 8, disable-cuda: true, learner-threads: 1}"
    (tmp_path / "s.yaml").write_text(
        f"environments: [gymnasium:CartPole-v1]\nagents: [reinforce]\nseeds: [1, 2]\noptions: {options}\n"
    )
    logs = [tmp_path / "results" / "s" / f"CartPole-v1_reinforce_seed-{seed}" / "sweep.log" for seed in (1, 2)]

    def wait_for(log: Path, text: str) -> None:
        cluster.wait_until(lambda: log.exists() and text in log.read_text(), f"{text!r} in {log}", 240)

    def submit() -> str:
        words = [ROOT / "sweep.py", "s.yaml", "--slurm", "--port-redis", port]
        done = run(*words, cwd=tmp_path, environment=clean_environment())
        assert done.code == 0 and "submit them with: sbatch results/s/sweep.sbatch" in done.out, done
        answer = cluster.run("sbatch", tmp_path / "results" / "s" / "sweep.sbatch")
        return answer.removeprefix("Submitted batch job ").strip()

    def wait_for_end() -> None:
        cluster.wait_until(lambda: not cluster.states(job), f"the end of job {job}", 300)

    port = free_port()
    job = submit()
    for log in logs:
        wait_for(log, "[learner] [")
    cluster.run("scancel", f"{job}_0")
    cluster.run("scancel", "--batch", "--signal=TERM", f"{job}_1")  # what --signal=B:TERM@120 does
    wait_for_end()
    for log in logs:
        wait_for(log, "all is stopped and saved")
    job = submit()
    wait_for_end()
    for log in logs:
        assert "Resuming from" in log.read_text() and "Finished at T = " in log.read_text(), log.read_text()
    assert run(ROOT / "sweep.py", "s.yaml", "--slurm", cwd=tmp_path).out == "all 2 runs have finished\n"

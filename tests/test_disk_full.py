"""A disk that is full for a while: a limit on the size of files stands for it, as it needs no disk of our own."""

import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deadline import finish, wait_until
from tests.system import LEARNER, Result, System
from tests.test_chain import SETTINGS

OPTIONS = (
    f"{' '.join(SETTINGS)} --nb-env-per-actor 3 --learn-start 600 --T-max 3000 "
    "--evaluation-interval 300 --log-interval 50 --learner-threads 1"
).split()
NO_LIMIT = resource.RLIM_INFINITY


def run(port: int, name: str, folder: Path, disturb: Callable[[System], None]) -> Result:
    system = System(port, name, folder, OPTIONS)
    try:
        disturb(system)
        return system.finish()
    finally:
        system.kill()


def limit(system: System, size: int) -> None:
    """No file of the learner grows beyond this any more."""
    resource.prlimit(system.processes[LEARNER].pid, resource.RLIMIT_FSIZE, (size, NO_LIMIT))


def wait_for(system: System, what: Callable[[], object]) -> None:
    wait_until(what, system.said, 100)


def scores(system: System) -> list[Path]:
    return [path for path in system.folder.glob("*.csv") if path.stat().st_size > 2000]


def during_snapshots(system: System) -> None:
    """Snapshots and plots are too large, while the scores still fit."""
    wait_for(system, lambda: scores(system))
    size = scores(system)[0].stat().st_size
    limit(system, size + 50_000)
    wait_for(system, lambda: "Not written, and tried again in 60 sec: [Errno 27]" in system.said())
    system.restart(LEARNER, signal.SIGKILL)  # and the newest snapshot is an old one


def during_scores(system: System) -> None:
    """Not even a score fits: the learner cannot go on, and its successor does."""
    wait_for(system, lambda: scores(system))
    limit(system, scores(system)[0].stat().st_size + 10)
    assert finish(system.processes[LEARNER], 100) == 1, system.said()
    assert "launch_learner.py: " in system.said()
    assert "Traceback" not in system.said()
    system.processes[LEARNER] = system.start(LEARNER)


@pytest.mark.redis
@pytest.mark.slow
def test_a_full_disk_leaves_no_trace_in_the_result(redis_port: int, run_name: str, tmp_path: Path) -> None:
    cases = {"undisturbed": lambda _: None, "snapshots": during_snapshots, "scores": during_scores}
    results = {name: run(redis_port, f"{run_name}_{name}", tmp_path / name, what) for name, what in cases.items()}
    for name in ("snapshots", "scores"):
        assert results[name].weights == results["undisturbed"].weights
        assert results[name].scores == results["undisturbed"].scores

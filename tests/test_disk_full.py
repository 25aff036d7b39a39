"""A disk that is full for a while: a limit on the size of files stands for it, as it needs no disk of our own."""

import resource
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deadline import wait_until
from tests.small import SHORT_CHAIN
from tests.system import LEARNER, Result, System

OPTIONS = [*SHORT_CHAIN, *"--nb-env-per-actor 3 --T-max 3000 --evaluation-interval 300".split()]
NO_LIMIT = resource.RLIM_INFINITY


def run(port: int, name: str, folder: Path, disturb: Callable[[System], None]) -> Result:
    with System(port, name, folder, OPTIONS) as system:
        disturb(system)
        return system.finish()


def limit(system: System, size: int) -> None:
    """No file of the learner grows beyond this any more."""
    resource.prlimit(system.learner.pid, resource.RLIMIT_FSIZE, (size, NO_LIMIT))


def wait_for(system: System, what: Callable[[], object]) -> None:
    wait_until(what, system.last_words, 100)


def scores(system: System) -> list[Path]:
    return [path for path in system.folder.glob("*.csv") if path.stat().st_size > 2000]


def during_snapshots(system: System) -> None:
    """Snapshots and plots are too large, while the scores still fit."""
    wait_for(system, lambda: scores(system))
    size = scores(system)[0].stat().st_size
    limit(system, size + 50_000)
    wait_for(system, lambda: "Not written, and tried again in 60 sec: [Errno 27]" in system.last_words())
    system.restart(LEARNER, signal.SIGKILL)  # and the newest snapshot is an old one


def during_scores(system: System) -> None:
    """Not even a score fits: the learner cannot go on, and its successor does."""
    wait_for(system, lambda: scores(system))
    limit(system, scores(system)[0].stat().st_size + 10)
    assert system.learner.finish(100) == 1, system.last_words()
    assert "launch_learner.py: " in system.last_words()
    assert "Traceback" not in system.last_words()
    system.start(LEARNER)


@pytest.mark.redis
@pytest.mark.slow
def test_a_full_disk_leaves_no_trace_in_the_result(redis_port: int, run_name: str, tmp_path: Path) -> None:
    cases = {"undisturbed": lambda _: None, "snapshots": during_snapshots, "scores": during_scores}
    results = {name: run(redis_port, f"{run_name}_{name}", tmp_path / name, what) for name, what in cases.items()}
    for name in ("snapshots", "scores"):
        assert results[name].weights == results["undisturbed"].weights
        assert results[name].scores == results["undisturbed"].scores

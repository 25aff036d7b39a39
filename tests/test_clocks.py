"""Clocks an hour apart change nothing: what expires is timed by the Redis server, and all else by monotonic clocks."""

import signal
from pathlib import Path

import pytest

from tests.small import SHORT_CHAIN
from tests.system import System

OPTIONS = [*SHORT_CHAIN, *"--learn-start 400 --T-max 1200 --evaluation-interval 500".split()]


@pytest.mark.redis
@pytest.mark.slow
def test_clocks_an_hour_apart(redis_port: int, run_name: str, tmp_path: Path) -> None:
    results = []
    for change in ("nothing", "ahead"):
        with System(redis_port, f"{run_name}_{change}", tmp_path / change, OPTIONS, change=change) as system:
            if change == "ahead":
                system.restart("0", signal.SIGKILL)  # its successor waits for the lease to expire
            results.append(system.finish())
    assert results[0].weights == results[1].weights
    assert results[0].scores == results[1].scores

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
    for launch in ("launch", "launch_ahead"):
        with System(redis_port, f"{run_name}_{launch}", tmp_path / launch, OPTIONS, launch=launch) as system:
            if launch == "launch_ahead":
                system.restart("0", signal.SIGKILL)  # its successor waits for the lease to expire
            results.append(system.finish())
    assert results[0].weights == results[1].weights
    assert results[0].scores == results[1].scores

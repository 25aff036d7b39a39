"""Whole runs with actors whose messages are damaged on the way: the learner leaves these out and continues."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.small import CHAIN
from tests.system import LEARNER, Run

pytestmark = pytest.mark.redis
OPTIONS = [*CHAIN, *"--learn-start 600 --T-max 1500 --memory-capacity 1500".split()]


@pytest.fixture
def run(redis_port: int, run_name: str, tmp_path: Path) -> Iterator[Run]:
    with Run(redis_port, run_name, tmp_path / "results", OPTIONS) as run:
        yield run


@pytest.mark.slow
@pytest.mark.parametrize("lockstep", ["True", "False"])
def test_a_run_goes_on_when_every_seventh_message_is_damaged(run: Run, tmp_path: Path, lockstep: str) -> None:
    more = ["--synchronize-actors-with-learner", lockstep, "--force"]
    learner, actor = run.start(LEARNER, *more), run.start("0", *more, change="corrupting")
    out = learner.end(100).succeeded()
    assert actor.finish(30) == 0
    numbers = [int(count) for count in re.findall(r"Left out \d+ unreadable, (\d+) so far", out)]
    assert max(numbers) > 8
    assert out.count("Left out") < 20, "not a line for each"
    assert (tmp_path / "results" / "chain.csv").read_text().count("\n") > 100

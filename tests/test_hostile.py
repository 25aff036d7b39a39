"""Whole runs with peers that send what cannot be read: the learner goes on, or everybody ends with one clear line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rainbow_iqn_apex.memory.broker.connection import Client
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
def test_a_run_goes_on_when_every_seventh_message_is_damaged_and_one_is_not_the_actor_s(
    run: Run, client: Client, run_name: str, tmp_path: Path, lockstep: str
) -> None:
    more = ["--synchronize-actors-with-learner", lockstep, "--force"]
    learner, actor = run.start(LEARNER, *more), run.start("0", *more, change="corrupting")
    log = f"riqx:{{{run_name}}}:*:log:0"
    actor.wait_until(lambda: client.keys(log), "the actor's log")
    foreign: Any = client.xadd(client.keys(log)[0], {"m": b"somebody else's, under a number beyond all of the actor's"})
    out = learner.end(100).succeeded()
    assert actor.finish(30) == 0
    keys: Any = client.keys(f"riqx:{{{run_name}}}:*:quarantine:0")
    (key,) = keys
    entries: Any = client.xrange(key)
    lost = [int(entry.split(b"-")[0]) for entry, _ in entries]
    assert max(lost) > int(foreign.split(b"-")[0]), "the actor has gone on after it"
    assert len(lost) > 8 and "Left out" in out and key.decode() in out
    assert out.count("Left out") < 20, "not a line for each"
    assert (tmp_path / "results" / "chain.csv").read_text().count("\n") > 100

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


@pytest.mark.slow
def test_a_number_beyond_all_does_not_spoil_the_snapshot(run: Run, client: Client, run_name: str) -> None:
    learner = run.start(LEARNER)
    learner.wait_for("Learner of run")
    (record,) = client.keys(f"riqx:{{{run_name}}}")
    run_id = client.hget(record, "run_id")
    assert isinstance(run_id, bytes)
    client.xadd(f"riqx:{{{run_name}}}:{run_id.decode()}:log:0", {"m": b"garbage"}, id=f"{2**64 - 1}-0")
    learner.wait_for("Left out 1 unreadable")
    learner.terminate()
    assert learner.finish(30) == 0
    learner = run.start(LEARNER)
    learner.wait_for("Resuming from")
    learner.wait_for("Learner of run")
    actor = run.start("0")
    assert actor.finish(60) == 1
    assert "start the run afresh" in actor.errors


def test_weights_that_were_damaged_end_an_actor_in_one_line(run: Run, client: Client, run_name: str) -> None:
    learner, actor = run.start(LEARNER), run.start("0")
    actor.wait_for("plays chain")

    def damage_until_it_has_ended() -> bool:
        for key in client.keys(f"riqx:{{{run_name}}}:*:weights:*"):
            client.set(key, b"damaged")
        return actor.exit_code is not None

    actor.wait_until(damage_until_it_has_ended, "the end of the actor")
    code, _, errors = actor.end()
    assert code == 1
    assert errors.count("\n") == 1 and "the weights in Redis" in errors
    learner.terminate()
    assert learner.finish(30) == 0, "it waits for its actor, whatever becomes of those that come"

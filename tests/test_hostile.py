"""Whole runs with peers that send what cannot be read: the learner goes on, or everybody ends with one clear line."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.broker.connection import Client
from tests.deadline import communicate, finish
from tests.test_chain import ROOT
from tests.test_programs import Programs, wait_for

pytestmark = pytest.mark.redis
SHORT = "--learn-start 600 --T-max 1500 --memory-capacity 1500".split()


@pytest.fixture
def programs(redis_port: int, run_name: str, tmp_path: Path) -> Iterator[Programs]:
    programs = Programs(redis_port, run_name, tmp_path / "results")
    yield programs
    programs.end()


def start(module: str, programs: Programs, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-u", "-m", f"tests.chain.{module}", "launch_actor.py", "--id-actor", "0"]
    pipe = subprocess.PIPE
    return subprocess.Popen([*command, *programs.options, *more], cwd=ROOT, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize("lockstep", ["True", pytest.param("False", marks=pytest.mark.slow)])
def test_a_run_goes_on_when_every_seventh_message_is_damaged_and_one_is_not_the_actor_s(
    programs: Programs,
    client: Client,
    run_name: str,
    tmp_path: Path,
    lockstep: str,
) -> None:
    more = [*SHORT, "--synchronize-actors-with-learner", lockstep, "--force"]
    learner = programs.start("launch_learner.py", *more)
    with start("launch_corrupting", programs, *more) as actor:
        try:
            while not (logs := client.keys(f"riqx:{{{run_name}}}:*:log:0")):
                assert actor.poll() is None
            foreign = client.xadd(logs[0], {"m": b"somebody else's, under a number beyond all of the actor's"})
            out, errors = communicate(learner, 100)
            assert (learner.returncode, errors) == (0, ""), out
            assert finish(actor, 30) == 0
        finally:
            actor.kill()
    (key,) = client.keys(f"riqx:{{{run_name}}}:*:quarantine:0")
    lost = [int(entry.split(b"-")[0]) for entry, _ in client.xrange(key)]
    assert max(lost) > int(foreign.split(b"-")[0]), "the actor has gone on after it"
    assert len(lost) > 8 and "Left out" in out and key.decode() in out
    assert out.count("Left out") < 20, "not a line for each"
    assert (tmp_path / "results" / "chain.csv").read_text().count("\n") > 100


def test_a_number_beyond_all_does_not_spoil_the_snapshot(programs: Programs, client: Client, run_name: str) -> None:
    learner = programs.start("launch_learner.py", *SHORT)
    wait_for(learner, "Learner of run")
    (record,) = client.keys(f"riqx:{{{run_name}}}")
    run_id = client.hget(record, "run_id")
    assert isinstance(run_id, bytes)
    client.xadd(f"riqx:{{{run_name}}}:{run_id.decode()}:log:0", {"m": b"garbage"}, id=f"{2**64 - 1}-0")
    wait_for(learner, "Left out 1 unreadable")
    learner.send_signal(signal.SIGTERM)
    assert finish(learner, 30) == 0
    learner = programs.start("launch_learner.py", *SHORT)
    wait_for(learner, "Resuming from")
    wait_for(learner, "Learner of run")
    actor = programs.start("launch_actor.py", "--id-actor", "0", *SHORT)
    assert finish(actor, 60) == 1
    assert actor.stderr
    assert "start the run afresh" in actor.stderr.read()


def test_an_actor_of_another_release_is_refused_at_its_start(programs: Programs) -> None:
    learner = programs.start("launch_learner.py", *SHORT)
    with start("launch_newer", programs, *SHORT) as actor:
        try:
            _, errors = communicate(actor, 60)
        finally:
            actor.kill()
    assert (actor.returncode, errors.count("\n")) == (2, 1), errors
    assert "wire version 1 is older than this program's 2: update the program that wrote it" in errors
    learner.send_signal(signal.SIGTERM)
    assert finish(learner, 30) == 0


def test_weights_that_were_damaged_end_an_actor_in_one_line(
    programs: Programs,
    client: Client,
    run_name: str,
) -> None:
    learner = programs.start("launch_learner.py", *SHORT)
    wait_for(learner, "Learner of run")
    actor = programs.start("launch_actor.py", "--id-actor", "0", *SHORT)
    wait_for(actor, "plays chain")
    while actor.poll() is None:
        for key in client.keys(f"riqx:{{{run_name}}}:*:weights:*"):
            client.set(key, b"damaged")
    assert actor.returncode == 1
    assert actor.stderr
    errors = actor.stderr.read()
    assert errors.count("\n") == 1 and "the weights in Redis" in errors

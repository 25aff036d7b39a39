"""Faults in a row by a seeded schedule: the run goes on as if nothing had happened.

CHAOS_FAULTS=500 CHAOS_SEED=7 pytest tests/chaos/test_chaos.py     # many more faults than CI has time for
"""

import os
import re
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.chaos.faults import LEARNER, Fault, schedule
from tests.chaos.runs import ACTORS, ENDLESS, FAMILIES, RAINBOW, TAKE_TURNS, asynchronous_run, lockstep_run
from tests.chaos.system import Chaos, chaos

FAULTS = int(os.environ.get("CHAOS_FAULTS", "20"))  # of each run
SEED = int(os.environ.get("CHAOS_SEED", "1"))
LOCKSTEP_STEPS = 400  # agent steps for each fault: enough that a run lasts as long as its faults
LATENCY_S = 0.01  # which keeps it from ending before
pytestmark = [pytest.mark.redis, pytest.mark.slow, pytest.mark.timeout(300 + 30 * FAULTS)]


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - TAKE_TURNS))
def test_without_lockstep_nothing_is_lost(family: str, tmp_path: Path) -> None:
    bursts = schedule(SEED, FAULTS, ACTORS)
    asynchronous_run(tmp_path / "run", lambda system: happen(system, bursts), family=FAMILIES[family])


@pytest.mark.parametrize("name", ["rainbow", "impala-lstm", "mixture", "r2d2", "ppo"])
def test_lockstep_ends_as_if_nothing_had_happened(name: str, tmp_path: Path) -> None:
    """Faults of the network need one family of each kind of buffer: `test_kills.py` has the kills of all."""
    family = FAMILIES[name]
    bursts = schedule(SEED + 1000, FAULTS, ACTORS)
    steps = LOCKSTEP_STEPS * sum(map(len, bursts))
    with ThreadPoolExecutor(1) as beside:
        undisturbed = beside.submit(lockstep_run, tmp_path / "undisturbed", steps, lambda _: None, family)

        def disturb(system: Chaos) -> None:
            system.set_latency(LATENCY_S)
            happen(system, bursts)
            system.set_latency(0)

        assert lockstep_run(tmp_path / "disturbed", steps, disturb, family) == undisturbed.result()


def test_a_stopped_learner_whose_run_was_abandoned_leaves_the_new_one_alone(tmp_path: Path) -> None:
    with chaos(tmp_path / "run", [*RAINBOW.words, *ENDLESS], ACTORS) as system:
        system.wait_for_progress()
        old = system.processes[LEARNER]
        assert old.pid
        os.kill(old.pid, signal.SIGSTOP)
        rival = system.beside(LEARNER, "--path-to-results", str(tmp_path / "rival"), "--abandon-other-run")
        for actor in range(ACTORS):
            system.wait(system.processes[str(actor)], {0}, f"actor {actor}, whose run is over")
            system.start(str(actor))
        system.wait_for_progress()
        os.kill(old.pid, signal.SIGCONT)
        system.wait(old, {1}, "the learner whose run is over")
        assert re.search(
            "launch_learner.py: the (lease of a )?learner of run .* lost", system.output(LEARNER).read_text()
        )
        system.processes[LEARNER] = rival
        system.wait_for_progress()
        system.leave()
        abandoned, _ = system.tap.runs
        left = system.client.keys(f"*:{abandoned}:*")
        assert not [key for key in left if system.client.pttl(key) < 0], "reports expire by themselves"


def happen(system: Chaos, bursts: list[list[Fault]]) -> None:
    """All faults, or as many as a run in lockstep lasts for: most."""
    happened: Counter[str] = Counter()
    system.wait_for_progress()
    for burst in bursts:
        if system.finished():
            break
        start = time.monotonic()
        system.disturb(burst)
        print(f"{time.monotonic() - start:5.1f} s", *burst, flush=True)
        happened.update(f"{fault.kind} {fault.who}" for fault in burst)
    print(f"{happened.total()} faults of {sum(map(len, bursts))}: {dict(sorted(happened.items()))}")
    assert happened.total() > sum(map(len, bursts)) / 2, "the run was over too soon"

"""The checks notice when experience is lost or doubled: each of these makes a run fail, by the fault that shows it."""

import time
from pathlib import Path

import pytest

from memory.broker.transport import Keys, last_sequence
from tests.chaos.faults import LEARNER, Fault
from tests.chaos.runs import asynchronous_run
from tests.chaos.system import Chaos

pytestmark = [pytest.mark.redis, pytest.mark.slow]


def kill(who: str) -> Fault:
    return Fault("kill", who, 0)


def test_messages_without_state(tmp_path: Path) -> None:
    def disturb(system: Chaos) -> None:
        system.wait_for_messages("0", 30)
        system.disturb([kill("0")])
        system.wait_for_messages("0", 30)

    with pytest.raises(AssertionError, match=r"actor 0, environment \d: .* does not join"):
        asynchronous_run(tmp_path / "run", disturb, {"0": "messages without state"})


def test_messages_before_their_state(tmp_path: Path) -> None:
    def disturb(system: Chaos) -> None:
        system.wait_for_messages("0", 30)
        keys = Keys(system.name, system.tap.runs[-1])
        while last_sequence(system.client, keys.log(0)) <= int(system.client.hget(keys.state(0), "sequence") or 0):
            time.sleep(0.005)
        system.disturb([kill("0")])
        system.wait_for_messages("0", 30)

    with pytest.raises(AssertionError, match=r"message \d+ after \d+|does not join|episodes' numbers"):
        asynchronous_run(tmp_path / "run", disturb, {"0": "messages before state"})


def test_ids_of_the_clock(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"actor 0: message \d{12,} after 0"):
        asynchronous_run(tmp_path / "run", Chaos.wait_for_progress, {"0": "ids of the clock"})


def test_trimming_what_was_not_read(tmp_path: Path) -> None:
    def disturb(system: Chaos) -> None:
        system.wait_for_progress()
        log = Keys(system.name, system.tap.runs[-1]).log(0)
        while last_sequence(system.client, log) <= system.client.xlen(log):  # in this order, as the log grows
            time.sleep(0.01)
        system.disturb([kill(LEARNER)])
        system.wait_for_messages("0", 100)  # enough to train on: what is still missing then is given up

    with pytest.raises(AssertionError, match=r"message \d+ after|never read|left out|not full|has gaps"):
        asynchronous_run(tmp_path / "run", disturb, {LEARNER: "trim before ingest"}, slots=1000)


def test_a_lease_that_is_not_renewed(tmp_path: Path) -> None:
    """The learner's: an actor prolongs its own with each commit, too."""

    def disturb(system: Chaos) -> None:
        system.wait_for_progress()
        system.disturb([Fault("intrude", LEARNER, 0)])

    with pytest.raises(AssertionError, match="a second learner: "):
        asynchronous_run(tmp_path / "run", disturb, {LEARNER: "lease not renewed"})

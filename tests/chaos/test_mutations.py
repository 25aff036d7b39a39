"""The checks notice when experience is lost or doubled: each of these makes a run fail, by the fault that shows it."""

import time
from pathlib import Path

import pytest

from rainbow_iqn_apex.memory.broker.transport import Keys, last_sequence
from tests.chaos.faults import LEARNER, Fault
from tests.chaos.runs import FAMILIES, NEWEST, RAINBOW, asynchronous_run
from tests.chaos.system import Chaos

LARGE = RAINBOW._replace(slots=1000)
MUTATED_QUEUES = {
    "queue forgotten": r"chunks were counted twice, or not at all|\d+ chunks were never learned from",
    "queue taken up twice": r"chunks were counted twice, or not at all|\d+ chunks were learned from twice",
}
MUTATED_MIXTURES = {
    "fresh twice": r"\d+ chunks were learned from twice",
    "waiting sequences not saved": r"\d+ chunks were never learned from",
    "table keeps its oldest": r"replays .*, which is gone from its table",
    "features of the row before": "actor 0, environment 0: features of another network",
}
pytestmark = [pytest.mark.redis, pytest.mark.slow]


def kill(who: str) -> Fault:
    return Fault("kill", who, 0)


def last_sequence_of(system: Chaos, key: str) -> int:
    return last_sequence(system.client, key)  # type: ignore[arg-type]  # a plain client


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
        while last_sequence_of(system, keys.log(0)) <= int(system.client.hget(keys.state(0), "sequence") or 0):
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
        while last_sequence_of(system, log) <= system.client.xlen(log):  # in this order, as the log grows
            time.sleep(0.01)
        system.disturb([kill(LEARNER)])
        system.wait_for_messages("0", 100)  # enough to train on: what is still missing then is given up

    with pytest.raises(AssertionError, match=r"message \d+ after|never read|not full|has gaps"):
        asynchronous_run(tmp_path / "run", disturb, {LEARNER: "trim before ingest"}, LARGE)


def test_a_lease_that_is_not_renewed(tmp_path: Path) -> None:
    """The learner's: an actor prolongs its own with each commit, too."""

    def disturb(system: Chaos) -> None:
        system.wait_for_progress()
        system.disturb([Fault("intrude", LEARNER, 0)])

    with pytest.raises(AssertionError, match="a second learner: "):
        asynchronous_run(tmp_path / "run", disturb, {LEARNER: "lease not renewed"})


def test_actors_that_never_wait(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"actor 0 was \d+ messages ahead of the learner"):
        asynchronous_run(tmp_path / "run", freeze_the_learner, {"0": "actors never wait"}, FAMILIES["impala"])


def test_a_queue_that_takes_in_more_than_it_has_room_for(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"\d+ chunks were never learned from"):
        asynchronous_run(tmp_path / "run", freeze_the_learner, {LEARNER: "queue overfilled"}, FAMILIES["impala"])


@pytest.mark.parametrize("mutation", ["queue forgotten", "queue taken up twice"])
def test_a_queue_after_a_kill(mutation: str, tmp_path: Path) -> None:
    """Of a learner that has two checkpoints, as the log then holds chunks that the newer one has learned from."""

    def disturb(system: Chaos) -> None:
        system.wait_for_checkpoints()
        system.disturb([kill(LEARNER)])

    with pytest.raises(AssertionError, match=MUTATED_QUEUES[mutation]):
        asynchronous_run(tmp_path / "run", disturb, {LEARNER: mutation}, FAMILIES["impala-lstm"])


@pytest.mark.parametrize("mutation", MUTATED_MIXTURES)
def test_a_mixture(mutation: str, tmp_path: Path) -> None:
    def disturb(system: Chaos) -> None:
        system.wait_for_messages("0", 3 * NEWEST)
        system.wait_for_checkpoints()
        if mutation.startswith("waiting"):
            system.disturb([kill(LEARNER)])

    who = "0" if mutation.startswith("features") else LEARNER
    with pytest.raises(AssertionError, match=MUTATED_MIXTURES[mutation]):
        asynchronous_run(tmp_path / "run", disturb, {who: mutation}, FAMILIES["mixture"])


@pytest.mark.parametrize("family", ["impala", "impala-lstm", "r2d2"])
def test_a_memory_that_is_not_restored(family: str, tmp_path: Path) -> None:
    def disturb(system: Chaos) -> None:
        for _ in range(2):
            system.wait_for_messages("0", 60)
            system.disturb([kill("0")])
        system.wait_for_messages("0", 30)

    found = "actions of another policy" if family == "impala" else "is not that before its chunk"
    with pytest.raises(AssertionError, match=rf"actor 0, environment \d: .*{found}"):
        asynchronous_run(tmp_path / "run", disturb, {"0": "memory not restored"}, FAMILIES[family])


def test_a_state_of_another_chunk(tmp_path: Path) -> None:
    def disturb(system: Chaos) -> None:
        system.wait_for_messages("0", 3 * FAMILIES["r2d2"].slots)
        system.wait_for_progress()

    with pytest.raises(AssertionError, match=r"update \d+ saw other rows or another state"):
        asynchronous_run(tmp_path / "run", disturb, {LEARNER: "state of another chunk"}, FAMILIES["r2d2"])


def test_updates_ahead_of_rows(tmp_path: Path) -> None:
    def disturb(system: Chaos) -> None:
        for who in system.who[1:]:
            system.wait_for_messages(who, 120)
        system.wait_for_progress()
        system.disturb([Fault("freeze", who, 1) for who in system.who[1:]])

    with pytest.raises(AssertionError, match="sequences are learned from more often than they may"):
        asynchronous_run(tmp_path / "run", disturb, {LEARNER: "updates ahead of rows"}, FAMILIES["r2d2"])


def freeze_the_learner(system: Chaos) -> None:
    for who in system.who[1:]:
        system.wait_for_messages(who, 60)
    system.disturb([Fault("freeze", LEARNER, 2)])

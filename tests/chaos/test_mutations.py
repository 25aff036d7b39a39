"""The checks notice when experience is lost or doubled: each of these makes a run fail, by the fault that shows it."""

import time
from pathlib import Path

import pytest

from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.scripts import log_extent
from tests.chaos.faults import LEARNER, Fault
from tests.chaos.runs import FAMILIES, NEWEST, RAINBOW, Disturb, asynchronous_run
from tests.chaos.system import Chaos

LARGE = RAINBOW._replace(slots=1000)
ACTOR, ACTORS = "0", ("0", "1")
pytestmark = [pytest.mark.redis, pytest.mark.slow]


def last_sequence_of(system: Chaos, key: str) -> int:
    return log_extent(system.client, key).last  # type: ignore[arg-type]  # a plain client


def state_is_late(system: Chaos) -> None:
    keys = Keys(system.name, system.tap.runs[-1])
    while last_sequence_of(system, keys.log(0)) <= int(system.client.hget(keys.state(0), "sequence") or 0):
        time.sleep(0.005)


def log_is_trimmed(system: Chaos) -> None:
    log = Keys(system.name, system.tap.runs[-1]).log(0)
    while last_sequence_of(system, log) <= system.client.xlen(log):  # in this order, as the log grows
        time.sleep(0.01)


def sent(number: int, *actors: str) -> Disturb:
    def wait(system: Chaos) -> None:
        for who in actors or (ACTOR,):
            system.wait_for_messages(who, number)

    return wait


def fault(kind: str, *who: str, seconds: float = 0) -> Disturb:
    return lambda system: system.disturb([Fault(kind, one, seconds) for one in who])


GOT_ON = Chaos.wait_for_progress
SAVED = Chaos.wait_for_checkpoints  # two, as the log then holds chunks that the newer one has learned from
KILL, KILL_LEARNER = fault("kill", ACTOR), fault("kill", LEARNER)
BEFORE = (sent(30), state_is_late, KILL, sent(30))
TRIMMED = (GOT_ON, log_is_trimmed, KILL_LEARNER, sent(100))  # enough to train on: what is still missing is given up
INTRUDED = (GOT_ON, fault("intrude", LEARNER))  # the learner's lease: an actor prolongs its own with each commit, too
HELD_UP = (sent(60, *ACTORS), fault("freeze", LEARNER, seconds=2))
FULL = (sent(3 * NEWEST), SAVED)
KILLED = (sent(60), KILL, sent(60), KILL, sent(30))
REPLAYED = (sent(3 * FAMILIES["r2d2"].slots), GOT_ON)
SLOW_ROWS = (sent(120, *ACTORS), GOT_ON, fault("freeze", *ACTORS, seconds=1))
ENV = r"actor 0, environment \d: .*"
COUNTED, LOST = "chunks were counted twice, or not at all", r"\d+ chunks were never learned from"
TWICE = r"\d+ chunks were learned from twice"
# Whose program is changed, how, the run's agent, what happens to the run, and the fault that shows the change.
CASES: list[tuple[str, str, str, tuple[Disturb, ...], str]] = [
    (ACTOR, "messages without state", "rainbow", (sent(30), KILL, sent(30)), f"{ENV} does not join"),
    (ACTOR, "messages before state", "rainbow", BEFORE, r"message \d+ after|does not join|episodes' numbers|anew"),
    (ACTOR, "ids of the clock", "rainbow", (GOT_ON,), r"actor 0: message \d{12,} after 0"),
    (LEARNER, "trim before ingest", "large", TRIMMED, r"message \d+ after|never read|not full|has gaps|are missing"),
    (LEARNER, "lease not renewed", "rainbow", INTRUDED, "a second learner: "),
    (ACTOR, "actors never wait", "impala", HELD_UP, r"actor 0 was \d+ messages ahead of the learner"),
    (LEARNER, "queue overfilled", "impala", HELD_UP, LOST),
    (LEARNER, "queue forgotten", "impala-lstm", (SAVED, KILL_LEARNER), f"{COUNTED}|{LOST}"),
    (LEARNER, "queue taken up twice", "impala-lstm", (SAVED, KILL_LEARNER), f"{COUNTED}|{TWICE}"),
    (LEARNER, "fresh twice", "mixture", FULL, TWICE),
    (LEARNER, "waiting sequences not saved", "mixture", (*FULL, KILL_LEARNER), LOST),
    (LEARNER, "table keeps its oldest", "mixture", FULL, "replays .*, which is gone from its table"),
    (ACTOR, "features of the row before", "mixture", FULL, "actor 0, environment 0: features of another network"),
    (ACTOR, "memory not restored", "impala", KILLED, f"{ENV}actions of another policy"),
    (ACTOR, "memory not restored", "impala-lstm", KILLED, f"{ENV}is not that before its chunk"),
    (ACTOR, "memory not restored", "r2d2", KILLED, f"{ENV}is not that before its chunk"),
    (LEARNER, "state of another chunk", "r2d2", REPLAYED, r"update \d+ saw other rows or another state"),
    (LEARNER, "updates ahead of rows", "r2d2", SLOW_ROWS, "sequences are learned from more often than they may"),
]


@pytest.mark.parametrize(
    ("who", "mutation", "family", "happens", "found"), CASES, ids=[f"{case[1]}, {case[2]}" for case in CASES]
)
def test_a_mutation_is_found(
    who: str, mutation: str, family: str, happens: tuple[Disturb, ...], found: str, tmp_path: Path
) -> None:
    def disturb(system: Chaos) -> None:
        for step in happens:
            step(system)

    with pytest.raises(AssertionError, match=found):
        asynchronous_run(tmp_path / "run", disturb, {who: mutation}, LARGE if family == "large" else FAMILIES[family])

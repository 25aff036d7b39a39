"""Lines about waiting name who is missing, and the command that starts it."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest

from rainbow_iqn_apex.common import waiting
from rainbow_iqn_apex.common.errors import Stopped
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.leases import LEARNER, is_at_work
from rainbow_iqn_apex.memory.broker.reports import Commands, MissingProcesses, ReportStore
from rainbow_iqn_apex.memory.broker.run_client import wait_for_run
from rainbow_iqn_apex.memory.messages import Joined
from tests.memory.inbox import SCHEMA, stopped_after

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("short_reads")]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "INTERVAL_S", 0.2)


COMMANDS = Commands("start the learner", "start --id-actor 0")


def hold(client: Client, keys: Keys, *processes: int) -> None:
    """Leases of these processes."""
    for process in processes:
        client.set(keys.learner_lease if process == LEARNER else keys.actor_lease(process), b"held", px=60_000)


def leave(client: Client, keys: Keys, process: int) -> None:
    client.delete(keys.learner_lease if process == LEARNER else keys.actor_lease(process))


def test_who_is_absent(client: Client, keys: Keys) -> None:
    call = MissingProcesses(client, keys, range(12), COMMANDS)
    assert call.all() == "; the learner is not running: start the learner", "without it no actor can be there"
    hold(client, keys, LEARNER, *range(12))
    assert call.all() == ""
    leave(client, keys, 3)
    assert call.all() == "; actor 3 is not running: start --id-actor 3"
    leave(client, keys, 11)
    told = "each to be started with its --id-actor: start --id-actor 3"
    assert call.all() == f"; 2 actors are not running (3, 11), {told}"
    for actor in range(3, 12):
        leave(client, keys, actor)
    assert call.all() == f"; 9 actors are not running (3, 4, 5, 6, 7, 8, 9, 10 ...), {told}"
    assert MissingProcesses(client, keys, range(3), COMMANDS).all() == ""


def test_a_run_is_at_work_while_one_of_its_processes_holds_a_lease(client: Client, keys: Keys) -> None:
    # Mutations: count reports and records, or other runs' leases.
    sharded = replace(keys, shards=3)
    leases = [keys.lease_of(rank) for rank in (0, 1)] + [sharded.actor_lease(actor) for actor in range(3)]
    leases += [replace(sharded, evaluation=True).actor_lease(7), replace(keys, inference=True).actor_lease(7)]
    others = [keys.run, keys.log(0), keys.report(0), keys.learner_report, keys.film("best")]
    others += [replace(keys, name=name).actor_lease(0) for name in (f"{keys.name}s", keys.name[:-1], "*")]
    for key in others:
        client.set(key, b"there", px=60_000)
    assert not is_at_work(client, keys.name)
    for lease in leases:
        client.set(lease, b"held", px=60_000)
        assert is_at_work(client, keys.name), lease
        client.delete(lease)
    client.delete(*others)


def test_why_an_actor_is_absent(client: Client, keys: Keys) -> None:
    call = MissingProcesses(client, keys, range(4), COMMANDS)
    hold(client, keys, LEARNER, 0, 1, 3)
    with closing(ReportStore(client, keys)) as store:
        store.write(0, b"damaged")
        for actor, is_ended, text in (
            (1, True, "failed (here)"),
            (2, True, "failed (there)"),
            (3, False, "failed (once)"),
        ):
            store.write(
                actor, json.dumps({"ended": is_ended, "events": [[0, "joined", False], [1, text, True]]}).encode()
            )
    assert call.all() == "; actor 2 has failed (there); actor 2 is not running: start --id-actor 2"
    leave(client, keys, 0)
    leave(client, keys, 1)
    told = "; 3 actors are not running (0, 1, 2), each to be started with its --id-actor: start --id-actor 0"
    assert call.all() == f"; actor 1 has failed (here){told}"


def test_the_plain_commands(client: Client, keys: Keys) -> None:
    assert MissingProcesses(client, keys, range(2)).all().endswith(": python launch_learner.py")
    hold(client, keys, LEARNER, 0)
    assert MissingProcesses(client, keys, range(2)).all().endswith(": python launch_actor.py --id-actor 1")


def test_a_learner_whose_lease_redis_has_lost_does_not_call_itself_absent(client: Client, run_name: str) -> None:
    # Mutation: ask for the learner's lease, too.
    with LearnerClient(client, run_name, {}, 2, commands=COMMANDS) as learner:
        learner.lead("id")
        hold(client, learner.keys, 0)
        leave(client, learner.keys, LEARNER)
        assert learner.missing().actors() == "; actor 1 is not running: start --id-actor 1"


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    """Is set after some lines about the wait."""
    with stopped_after(1.5) as stop:
        yield stop


def last_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The last one about the run; the short interval brings others about the Redis server."""
    return [line for line in capsys.readouterr().out.splitlines() if "the Redis server" not in line][-1]


def test_a_learner_names_the_actors_that_it_waits_for(
    client: Client, run_name: str, capsys: pytest.CaptureFixture[str], stop: threading.Event
) -> None:
    with LearnerClient(client, run_name, {}, 2, commands=COMMANDS) as learner, ExitStack() as stack:
        learner.lead("id")
        actor = stack.enter_context(ActorClient(client, run_name, "id", 0, threading.Event()))
        actor.commit([Joined(1)], b"state")
        inbox = learner.inbox(SCHEMA, stop)
        stack.enter_context(closing(inbox))
        with pytest.raises(Stopped):
            list(inbox.take_round(0))
    assert re.fullmatch(
        r"Waiting for actor \d to play round 0 \(\d+ sec\); actor 1 is not running: start --id-actor 1",
        last_line(capsys),
    )


@pytest.mark.parametrize("missing", [LEARNER, 1])
def test_an_actor_names_who_keeps_everybody_waiting(
    client: Client, run_name: str, capsys: pytest.CaptureFixture[str], stop: threading.Event, missing: int
) -> None:
    keys = Keys(run_name, "id")
    hold(client, keys, *({LEARNER, 1} - {missing}))
    call = MissingProcesses(client, keys, range(2), COMMANDS)
    with ActorClient(client, run_name, "id", 0, stop, missing=call) as actor, pytest.raises(Stopped):
        actor.wait_for_version(0)
    who, start = ("the learner", "the learner") if missing == LEARNER else ("actor 1", "--id-actor 1")
    line = last_line(capsys)
    assert line.startswith("Waiting for the learner to publish weights version 0 (")
    assert line.endswith(f" sec); {who} is not running: start {start}")


def test_an_actor_that_comes_first_names_the_learner(
    client: Client, run_name: str, capsys: pytest.CaptureFixture[str], stop: threading.Event
) -> None:
    with pytest.raises(Stopped):
        wait_for_run(client, run_name, {}, stop, COMMANDS)
    line = last_line(capsys)
    assert line.startswith(f"Waiting for the learner of run {run_name!r} (")
    assert line.endswith(" sec); the learner is not running: start the learner")

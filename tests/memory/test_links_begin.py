"""Both ends of the transport as a run begins: who may lead it, and who may play for it."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from rainbow_iqn_apex.common.errors import RunError, Stopped, UserError
from rainbow_iqn_apex.memory.broker import leases as lease
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.record import RunStatus, read_run
from rainbow_iqn_apex.memory.broker.run_client import RunOver, wait_for_run
from rainbow_iqn_apex.memory.broker.scripts import log_extent
from tests.memory.links import HERE, SETTINGS, actor_link, after, learner_link, play, rounds_of, write_run

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("short_reads")]


def test_an_actor_waits_for_its_learner(client: Client, run_name: str) -> None:
    with learner_link(client, run_name) as learner:
        with after(0.2, lambda: learner.write_progress("running", 3, 4, {})):
            record = wait_for_run(client, run_name, SETTINGS, threading.Event())
        assert record == RunStatus("id", "running", SETTINGS, 3, 4, owner=HERE)
        told = r"--discount is 0.9 here and 0.99 .*\n--seed is 2 here and 1 .*--run-name"
        with after(0.2, lambda: learner.write_progress("running", 3, 5, {})), pytest.raises(UserError, match=told):
            wait_for_run(client, run_name, SETTINGS | {"discount": 0.9, "seed": 2}, threading.Event())
        told = r"--new-one is 1 here and None"
        with after(1.1, lambda: learner.write_progress("running", 3, 5, {})), pytest.raises(UserError, match=told):
            wait_for_run(client, run_name, SETTINGS | {"new_one": 1}, threading.Event())


def test_what_a_killed_learner_left_refuses_nobody(client: Client, run_name: str) -> None:
    # Mutation: refuse without regard to whether the record has been written since.
    changed = SETTINGS | {"nb_actor": 3}
    with learner_link(client, run_name) as killed:
        killed.write_progress("running", 3, 4, {})
        token = client.get(killed.keys.learner_lease)
    client.set(killed.keys.learner_lease, token or b"", px=700)  # as if it had not been given back

    def succeed() -> None:
        with LearnerClient(client, run_name, changed, 3) as learner:  # waits for the lease
            learner.lead("id")
            learner.write_progress("running", 5, 6, {})
            found.wait(30)

    found = threading.Event()
    with after(0, succeed):
        assert wait_for_run(client, run_name, changed, threading.Event()).t_learner == 5
        found.set()


def test_a_learner_that_does_not_lead_yet_is_not_one(client: Client, run_name: str) -> None:
    """It may go on under another run id than that of the record, which a killed learner has left."""
    # Mutation: look whether anybody has the lease.
    with learner_link(client, run_name) as killed:
        killed.write_progress("running", 3, 4, {})
    stop = threading.Event()
    with LearnerClient(client, run_name, SETTINGS, 2), after(0.2, stop.set), pytest.raises(Stopped):
        wait_for_run(client, run_name, SETTINGS, stop)


@pytest.mark.parametrize("status", ["running", "stopped", "finished"])
def test_what_an_earlier_learner_left_is_not_a_learner(client: Client, run_name: str, status: str) -> None:
    write_run(client, run_name, RunStatus("id", status, SETTINGS, 3, 4), {})
    stop = threading.Event()
    with after(0.2, stop.set), pytest.raises(Stopped):
        wait_for_run(client, run_name, SETTINGS, stop)


def test_a_second_learner_and_a_second_actor_are_refused(
    client: Client, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "TTL_MS", 3000)
    with learner_link(client, run_name), actor_link(client, run_name):
        with pytest.raises(UserError, match="--run-name"), learner_link(client, run_name, "another id"):
            pass
        with pytest.raises(UserError, match="--id-actor"), actor_link(client, run_name):
            pass
        with ActorClient(client, run_name, "id", 1, threading.Event()):  # another actor, and another run
            pass
        with learner_link(client, run_name + "2"):
            pass


def test_a_resumed_run_is_kept_and_an_abandoned_one_forgotten(client: Client, run_name: str) -> None:
    for name in (run_name, run_name + "2"):
        with learner_link(client, name) as learner, actor_link(client, name) as actor:
            play(actor, 1, 2)
            learner.write_progress("stopped", 3, 4, {0: 1})
    with learner_link(client, run_name) as learner:
        assert log_extent(learner._client, learner.keys.log(0)).last == 2
        assert len(rounds_of(client, run_name)) == 2
    with learner_link(client, run_name, "new", afresh=True) as learner:
        assert read_run(client, run_name) == RunStatus("new", "starting", SETTINGS, 0, 0, owner=HERE)
        assert log_extent(learner._client, learner.keys.log(0)).last == 0
        assert not client.exists(Keys(run_name, "id").log(0), Keys(run_name, "id").state(0))
    assert len(rounds_of(client, run_name + "2")) == 2


def test_the_numbers_of_an_abandoned_run_count_for_nothing(client: Client, run_name: str) -> None:
    # Mutation: leave in the record what was read of actors that the new run does not have yet.
    with learner_link(client, run_name) as learner:
        learner.write_progress("running", 0, 0, {0: 500, 4095: 400})
    with learner_link(client, run_name, "new", afresh=True) as learner:
        with ActorClient(client, run_name, "new", 4095, threading.Event()) as actor:
            assert actor.saved() is None
            play(actor, 0)
        assert log_extent(learner._client, learner.keys.log(4095)).last == 1
        learner.write_progress("running", 0, 0, {4095: 1})
    with learner_link(client, run_name, "new") as learner:
        assert client.hget(learner.keys.run, "read:4095") == b"1", "a run that goes on keeps its own"


def test_an_actor_of_an_abandoned_run_leaves_nothing_behind(
    client: Client, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "TTL_MS", 400)
    with actor_link(client, run_name) as actor, ExitStack() as stack:
        with monkeypatch.context() as patch:
            patch.setattr(lease.Lease, "_keep", lambda *_: None)  # else it may renew what is deleted here
            learner = stack.enter_context(learner_link(client, run_name))
        learner.write_progress("running", 0, 0, {})
        play(actor, 1)
        client.delete(learner.keys.learner_lease)
        with learner_link(client, run_name, "new", afresh=True) as successor:
            successor.write_progress("running", 0, 0, {})
            time.sleep(0.5)  # the actor has renewed its lease
            with pytest.raises((RunOver, RunError)):
                play(actor, 2)
    assert client.keys(f"*{run_name}*:id:*") == []


def test_the_steps_that_actors_are_told_never_fall(client: Client, run_name: str) -> None:
    """A learner that resumes counts again; what was told before bounds what its actors can have played."""
    with learner_link(client, run_name) as learner:
        assert learner.record.t_actors == 0
        learner.write_progress("running", 30, 400, {})
    with learner_link(client, run_name) as learner:
        assert learner.record.t_actors == 400
        learner.write_progress("running", 10, 200, {})
        record = read_run(client, run_name)
        assert record and (record.t_learner, record.t_actors) == (10, 400)
    with learner_link(client, run_name) as learner:
        assert learner.record.t_actors == 400
        learner.write_progress("running", 40, 500, {})
        assert learner.record.t_actors == 500
    with LearnerClient(client, run_name, SETTINGS, 2) as learner:
        learner.lead("new", afresh=True)
        assert learner.record.t_actors == 0


@pytest.mark.parametrize("successor", ["leads on", "leads another run", "has led another run and left"])
def test_a_learner_that_was_stopped_for_too_long_writes_no_more(
    client: Client, run_name: str, successor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease.Lease, "_keep", lambda *_: None)  # it has not looked after its lease yet
    run_id = "id" if successor == "leads on" else "new"
    with learner_link(client, run_name) as stopped, actor_link(client, run_name, run_id) as actor:
        client.delete(stopped.keys.learner_lease)
        link = LearnerClient(client, run_name, SETTINGS, 2)
        with link:
            link.lead(run_id, afresh=True)
            link.publish(0, b"weights")
            play(actor, 1, 2)
            link.write_progress("running", 5, 6, {0: 2})
            if "left" in successor:
                link.__exit__()
            before = {key: client.dump(key) for key in client.keys(f"riqx:{{{run_name}}}*")}
            writes: list[Callable[[], object]] = [
                lambda: stopped.publish(1, b"stale"),
                lambda: stopped.write_progress("running", 3, 4, {0: 1}),
                lambda: stopped.trim({0: 2}),
            ]
            for write in writes:
                with pytest.raises(RunError, match=r"learner of run .* lost its lease"):
                    write()
            assert {key: client.dump(key) for key in client.keys(f"riqx:{{{run_name}}}*")} == before


def test_a_lease_of_any_size_is_read_in_part(client: Client, run_name: str) -> None:
    stop = threading.Event()
    stop.set()
    client.set(Keys(run_name, "").learner_lease, bytes(1_000_000))
    with client.replies_up_to(10_000), pytest.raises(Stopped):
        wait_for_run(client, run_name, SETTINGS, stop)

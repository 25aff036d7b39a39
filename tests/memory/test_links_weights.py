"""Weights reach the actors, whatever a server loses, and the end of a run does."""

import signal
import threading
from functools import partial

import pytest

from rainbow_iqn_apex.common.errors import RunError, Stopped
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.broker import leases as lease
from rainbow_iqn_apex.memory.broker.admin import rewrite_file
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.record import RunStatus
from rainbow_iqn_apex.memory.broker.run_client import RunOver
from rainbow_iqn_apex.memory.messages import Joined
from tests.conftest import RedisServer
from tests.memory.links import (
    actor_link,
    after,
    expected,
    learner_link,
    play,
    rounds_of,
    wait_for_rewrite,
    weights,
    write_run,
)

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("short_reads")]


def test_weights_reach_a_waiting_actor(client: Client, run_name: str) -> None:
    with learner_link(client, run_name) as learner, actor_link(client, run_name) as actor:
        learner.write_progress("running", 0, 0, {})
        assert actor.newest_version() == -1
        for version in range(3):
            with after(0.1, partial(learner.publish, version, weights(version))):
                assert actor.wait_for_version(version) == version
            assert actor.weights(version).meta["version"] == version
        assert actor.wait_for_version(1) == 2
        assert actor.weights(0).meta["version"] == 2  # what has taken its place


def test_weights_before_the_ones_that_meet_an_empty_server_come_back(
    own_server: RedisServer, own_client: Client
) -> None:
    with learner_link(own_client, "run") as learner, actor_link(own_client, "run") as actor:
        for version in range(3):
            learner.publish(version, weights(version))
        own_server.restart_without(since=own_server.log.stat().st_size)
        learner.publish(3, weights(3))
        for version in (2, 3):
            assert actor.weights(version).meta["version"] == version


def test_restoring_and_publishing_at_once_leave_the_newest(client: Client, run_name: str) -> None:
    """What is restored by one thread is never older than what another has published since it was kept."""
    with learner_link(client, run_name) as learner:
        learner.publish(0, weights(0))
        done = threading.Event()

        def restore() -> None:
            while not done.is_set():
                client.delete(learner.keys.versions)  # what a restart loses
                learner.restore_weights()

        with after(0, restore):
            for version in range(1, 200):
                learner.publish(version, weights(version))
            done.set()
        learner.restore_weights()
        for version in (198, 199):
            packet = client.get(learner.keys.weights(version))
            assert isinstance(packet, bytes)
            assert wire.decode(packet).meta["version"] == version


def test_lost_weights_are_published_again(own_server: RedisServer, own_client: Client) -> None:
    with learner_link(own_client, "run") as learner, actor_link(own_client, "run") as actor:
        for version in range(3):
            learner.publish(version, weights(version))
        own_server.restart_without(since=own_server.log.stat().st_size)
        assert actor.newest_version() == -1  # the loss is real
        learner.restore_weights()
        assert actor.newest_version() == 2
        assert actor.weights(2).meta["version"] == 2
        assert actor.weights(1).meta["version"] == 1, "in lockstep, an actor may be one version behind"


@pytest.mark.parametrize("restores", [True, False])
def test_versions_of_a_rewritten_file_give_way_to_those_of_a_learner_that_has_gone_back(
    own_server: RedisServer, own_client: Client, *, restores: bool
) -> None:
    # Mutation: `before > ...` out of PUBLISH, or `min(known) < newest` in `restore_weights`.
    with learner_link(own_client, "run") as learner, actor_link(own_client, "run") as actor:
        for version in range(10):
            learner.publish(version, weights(version))
        wait_for_rewrite(own_client)  # that of the beginning, which is over before another one begins
        rewrite_file(own_client)
        wait_for_rewrite(own_client)
        learner.publish_alone({version: weights(version) for version in (2, 3)})
        own_server.stop(signal.SIGKILL)
        own_server.start()
        assert actor.newest_version() == 9, "the file has the versions from before"
        if restores:
            learner.restore_weights()
            assert actor.newest_version() == 3
        learner.publish(4, weights(4))
        assert actor.newest_version() == 4
        assert actor.weights(3).meta["version"] == 3, "in lockstep, an actor may be one version behind"


@pytest.mark.parametrize("version", [1, 2])
def test_weights_that_somebody_has_deleted_are_published_again(client: Client, run_name: str, version: int) -> None:
    # In lockstep, an actor may be one version behind.
    with learner_link(client, run_name) as learner, actor_link(client, run_name) as actor:
        for published in range(3):
            learner.publish(published, weights(published))
        client.delete(learner.keys.weights(version))
        learner.restore_weights()
        assert client.exists(learner.keys.weights(version)) and actor.weights(version).meta["version"] == version


def test_weights_of_a_learner_that_has_gone_back_are_not_taken_for_newer_ones(client: Client, run_name: str) -> None:
    with learner_link(client, run_name) as learner, actor_link(client, run_name) as actor:
        learner.write_progress("running", 0, 0, {})
        learner.publish(1, weights(1))  # where version 3 was when the actor asked which is the newest
        with after(0.3, lambda: learner.publish(3, weights(3))):
            assert actor.weights(3).meta["version"] == 3


@pytest.mark.parametrize(("run_id", "status"), [("id", "stopped"), ("id", "finished"), ("another", "running")])
def test_a_waiting_actor_hears_of_the_end(client: Client, run_name: str, run_id: str, status: str) -> None:
    end = RunStatus(run_id, status, {}, 0, 0)
    with actor_link(client, run_name) as actor:
        assert actor.record() == RunStatus("id", "running", {}, 0, 0)  # a server that lost the record
        with after(0.1, lambda: write_run(client, run_name, end, {})), pytest.raises(RunOver):
            actor.wait_for_version(0)
        with pytest.raises(RunOver):
            actor.weights(0)


@pytest.mark.parametrize("status", ["stopped", "finished"])
def test_nothing_is_taken_in_once_the_learner_has_left_in_good_order(
    client: Client, run_name: str, status: str
) -> None:
    with actor_link(client, run_name) as actor:
        with learner_link(client, run_name) as learner:
            learner.write_progress("running", 0, 0, {})
            play(actor, 1)
            learner.write_progress(status, 0, 0, {})
            with pytest.raises(RunOver, match=status):
                play(actor, 2)
        assert rounds_of(client, run_name) == expected(1)
        with learner_link(client, run_name) as learner:  # goes on with a run that was stopped
            play(actor, 2)
        assert rounds_of(client, run_name) == expected(2)


def test_what_is_sent_again_while_the_learner_leaves_ends_the_actor_in_good_order(
    client: Client, run_name: str
) -> None:
    # Mutation: ask for the record after a refusal in `commit` alone.
    with learner_link(client, run_name) as learner, actor_link(client, run_name) as actor:
        learner.write_progress("running", 0, 0, {})
        play(actor, 1)
        learner.write_progress("stopped", 0, 0, {})
        with pytest.raises(RunOver, match="stopped"):
            actor._send_again(0)  # as `pause` does, which had read the record just before


def test_a_waiting_actor_can_be_stopped(client: Client, run_name: str) -> None:
    stop = threading.Event()
    with actor_link(client, run_name, stop=stop) as actor:
        with after(0.1, stop.set), pytest.raises(Stopped):
            actor.wait_for_version(0)
        with pytest.raises(Stopped):
            actor.weights(0)


def test_a_waiting_actor_notices_that_it_lost_its_place(
    client: Client, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "TTL_MS", 400)
    with actor_link(client, run_name) as actor:
        client.set(actor.keys.actor_lease(0), b"another")
        with pytest.raises(RunError, match="another process"):
            actor.wait_for_version(0)
        with pytest.raises(RunError, match="another process"):
            actor.commit([Joined(0)], b"")
    assert rounds_of(client, run_name) == []

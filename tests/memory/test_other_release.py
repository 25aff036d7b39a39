"""Peers of another release, and keys in Redis that none of ours has written so: one line says what is wrong."""

import threading
from collections.abc import Callable

import numpy as np
import pytest

from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.record import RunStatus, read_run
from rainbow_iqn_apex.memory.broker.run_client import wait_for_run
from rainbow_iqn_apex.memory.messages import Episode
from tests.memory.links import HERE, SETTINGS, actor_link, learner_link

pytestmark = pytest.mark.redis


@pytest.mark.parametrize("version", [wire.VERSION - 1, wire.VERSION + 1])
def test_an_actor_of_another_wire_version_is_refused(client: Client, run_name: str, version: int) -> None:
    with learner_link(client, run_name) as learner, actor_link(client, run_name) as actor:
        learner.write_progress("running", 0, 0, {})
        client.hset(Keys(run_name, "").run, mapping={"wire": version, "settings": "of another release"})
        calls: list[Callable[[], object]] = [
            lambda: wait_for_run(client, run_name, SETTINGS, threading.Event()),
            actor.record,
        ]
        for call in calls:
            with pytest.raises(UserError, match=f"wire version {version} is .* than this program's {wire.VERSION}"):
                call()


def test_a_record_that_another_release_has_left_is_no_reason_to_refuse(client: Client, run_name: str) -> None:
    with learner_link(client, run_name) as learner:
        learner.write_progress("stopped", 0, 0, {})
    client.hset(Keys(run_name, "").run, "wire", wire.VERSION + 1)
    with LearnerClient(client, run_name, SETTINGS, 1) as learner:
        with pytest.raises(UserError, match="of another release"):
            learner.lead("id", afresh=True)
        left = read_run(client, run_name)
        assert left is not None and left.wire_version == wire.VERSION + 1
        learner.lead("new", afresh=True)
        assert read_run(client, run_name) == RunStatus("new", "starting", SETTINGS, 0, 0, owner=HERE)


@pytest.mark.parametrize("data", [b"", b"\x80nonsense", wire.encode(wire.Tag.STATE, {"version": 0}), b"too large"])
def test_weights_that_are_none_are_one_line(client: Client, run_name: str, data: bytes) -> None:
    if data == b"too large":
        data = wire.encode(wire.Tag.WEIGHTS, {"version": 0}, {"a": np.zeros(2000, np.uint8)})
    with learner_link(client, run_name) as learner, actor_link(client, run_name) as actor:
        learner.publish(0, data)
        with pytest.raises(RunError, match=r"the weights in Redis, .* cannot be used: "):
            actor.weights(0, 1000)


def test_an_actor_whose_state_was_deleted_numbers_its_messages_on(client: Client, run_name: str) -> None:
    with learner_link(client, run_name), actor_link(client, run_name) as actor:
        actor.commit([Episode({}), Episode({})], b"damaged")
        client.hdel(actor.keys.state(0), "state")
    with actor_link(client, run_name) as actor:
        assert actor.saved() is None
        actor.commit([Episode({})], b"new")
        assert client.xlen(actor.keys.log(0)) == 3

"""A run in several shards: each actor lives in one of them, the learner in all."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from rainbow_iqn_apex.common.errors import LeaseLostError, UserError
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import SLOTS, Keys, slot_of, tag_of_shard
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient, Origin
from rainbow_iqn_apex.memory.broker.log import ExperienceReader
from rainbow_iqn_apex.memory.broker.record import find_runs, read_record, read_run
from rainbow_iqn_apex.memory.broker.run_client import RunOver, wait_for_run
from rainbow_iqn_apex.memory.messages import Message, RoundEnd
from tests.memory.inbox import SCHEMA, take
from tests.memory.links import after, weights

pytestmark = pytest.mark.redis
ACTORS = 5


@contextmanager
def leading(
    client: Client, name: str, shards: int, run_id: str = "id", *, afresh: bool = False, actors: int = ACTORS
) -> Iterator[LearnerClient]:
    with LearnerClient(client, name, {"redis_shards": shards}, actors, shards=shards) as learner:
        learner.lead(run_id, afresh=afresh)
        learner.write_progress("running", 0, 0, {})
        yield learner


def playing(client: Client, name: str, actor: int, shards: int, run_id: str = "id") -> ActorClient:
    return ActorClient(client, name, run_id, actor, threading.Event(), shards=shards)


def keys_of(client: Client, name: str) -> set[str]:
    found: Any = client.keys(f"riqx:{{{name}*")
    return {key.decode() for key in found}


def rounds(reader: ExperienceReader, count: int) -> list[tuple[int, Message | None]]:
    return [(entry.id.actor, entry.message) for round_ in range(count) for entry in reader.take_round(round_) if entry]


def test_one_shard_has_the_keys_of_before() -> None:
    keys, evaluation = Keys("pong", "id"), Keys("pong", "id", evaluation=True)
    assert keys.everywhere() == keys.every_shard() == [keys.beside(7)] == [keys]
    assert [keys.run, keys.learner_lease, keys.log(7)] == ["riqx:{pong}", "riqx:{pong}:learner", "riqx:{pong}:id:log:7"]
    assert evaluation.state(7) == "riqx:{pong}:id:evaluation:state:7"


@pytest.mark.parametrize("evaluation", [False, True])
def test_what_a_script_of_an_actor_touches_is_in_one_shard(evaluation: bool) -> None:
    # Mutation: the stream of actors in the place that a run has once.
    keys = Keys("pong", "id", evaluation, shards=3).beside(7)
    touched = [keys.log(7), keys.state(7), keys.actor_lease(7), keys.run, keys.actors, keys.versions, keys.weights(3)]
    others = [keys.learner_lease, keys.weights(2), keys.log(4)]
    assert len({*touched, *others}) == 10
    assert {key.partition("}")[0] for key in touched} == {f"riqx:{{{tag_of_shard('pong', 1, 3)}"}


@pytest.mark.parametrize("shards", [2, 3, 16, 256])
@pytest.mark.parametrize("name", ["pong", "gymnasium:CartPole-v1", "é/0", "a{b"])
def test_shards_are_spread_over_the_slots(name: str, shards: int) -> None:
    # Mutation: the first number alone.
    slots = [slot_of(Keys(name, "id", shards=shards, shard=shard).run) for shard in range(shards)]
    assert [slot * shards // SLOTS for slot in slots] == list(range(shards))


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_the_order_of_messages_is_the_same_in_however_many_shards(client: Client, run_name: str, shards: int) -> None:
    # Mutations: a reader of the first shard alone; actors that publish in the first one.
    with leading(client, run_name, shards) as learner, ExitStack() as stack:
        reader = learner.inbox(SCHEMA, threading.Event())
        stack.callback(reader.close)
        actors = [stack.enter_context(playing(client, run_name, actor, shards)) for actor in range(ACTORS)]
        assert {actor.unread() for actor in actors} == {0}
        for round_ in range(3):
            for actor in reversed(actors):
                actor.commit([RoundEnd(round_)], b"")
        assert rounds(reader, 3) == [(actor, RoundEnd(r)) for r in range(3) for actor in range(ACTORS)]
        assert reader.received == dict.fromkeys(range(ACTORS), 3)
        assert reader.unreadable == 0
        learner.publish(0, weights(0))
        learner.write_progress("running", 0, 0, dict.fromkeys(range(ACTORS), 2))
        assert {actor.unread() for actor in actors} == {1}
        learner.trim(dict.fromkeys(range(ACTORS), 3))
        for actor in actors:
            assert actor.weights(0).meta["version"] == 0
            assert client.xlen(actor.keys.log(actor.actor)) == 1
    tags = {key.partition("}")[0] for key in keys_of(client, run_name)}
    many = {f"riqx:{{{tag_of_shard(run_name, k, shards)}" for k in range(shards)} if shards > 1 else set()
    assert tags == {f"riqx:{{{run_name}"} | many
    assert [name for name in find_runs(client.aside()).names if name.startswith(run_name)] == [run_name]


def test_actors_that_nobody_expects_are_found_in_every_shard(client: Client, run_name: str) -> None:
    with leading(client, run_name, 3) as learner, ExitStack() as stack:
        early = stack.enter_context(playing(client, run_name, 7, 3))
        early.commit([RoundEnd(0)], b"")
        reader = learner.inbox(SCHEMA, threading.Event(), joining=True)
        stack.callback(reader.close)
        late = stack.enter_context(playing(client, run_name, 8, 3))
        late.commit([RoundEnd(0)], b"")
        assert {entry.id.actor for entry in take(reader, 2)} == {7, 8}
        assert list(reader.take_rest()) == []


def test_a_stop_is_known_in_every_shard(client: Client, run_name: str) -> None:
    # Mutation: a learner that writes the record that the run has once, alone.
    with leading(client, run_name, 3) as learner, ExitStack() as stack:
        actors = [stack.enter_context(playing(client, run_name, actor, 3)) for actor in range(3)]
        learner.write_progress("stopped", 0, 0, {})
        for actor in actors:
            with pytest.raises(RunOver):
                actor.commit([RoundEnd(0)], b"")


def test_a_learner_that_was_suspended_writes_to_no_shard(client: Client, run_name: str) -> None:
    """Mutation: no copies of the lease."""
    with LearnerClient(client, run_name, {}, 3, shards=3) as first:
        first.lead("id")
        client.delete(first.keys.learner_lease)  # as if it had run out
        with LearnerClient(client, run_name, {}, 3, shards=3) as second:
            second.lead("id")
            for keys in first.keys.everywhere():
                with pytest.raises(LeaseLostError):
                    first._scripts.trim(keys, first.lease.token, {})


@pytest.mark.parametrize(("before", "after"), [(3, 2), (1, 3), (3, 1)])
def test_another_run_takes_the_name_in_other_shards(client: Client, run_name: str, before: int, after: int) -> None:
    """What the former run holds is deleted in all of its shards, and its actors leave, wherever they are.

    Mutation: `forget_run` in the shards of the new run alone.
    """
    with ExitStack() as stack:
        with leading(client, run_name, before, "old") as learner:
            actors = [stack.enter_context(playing(client, run_name, actor, before, "old")) for actor in range(3)]
            for actor in actors:
                actor.commit([RoundEnd(0)], b"")
            learner.publish(0, weights(0))
        with leading(client, run_name, after, "new", afresh=True):
            left = {key for key in keys_of(client, run_name) if ":old:" in key}
            assert left <= {actor.keys.actor_lease(actor.actor) for actor in actors}
            for actor in actors:
                with pytest.raises(RunOver, match="begun another run"):
                    actor.commit([RoundEnd(1)], b"")


def test_processes_with_other_shards_are_refused(client: Client, run_name: str) -> None:
    with (
        leading(client, run_name, 3) as learner,
        after(1, lambda: learner.write_progress("running", 1, 1, {})),
        pytest.raises(UserError, match="--redis-shards is 2 here and 3 at the learner"),
    ):
        wait_for_run(client, run_name, {"redis_shards": 2}, threading.Event())


def test_a_shard_that_has_lost_all_is_noticed(client: Client, run_name: str) -> None:
    # Mutation: only the record that the run has once is looked at.
    with leading(client, run_name, 3) as learner:
        keys = learner.keys
        origin = Origin(client.where, 0)
    with LearnerClient(client, run_name, {"redis_shards": 3}, ACTORS, shards=3) as learner:
        assert learner.check_name("id", origin=origin) is not None
        client.delete(keys.beside(1).run)
        with pytest.raises(UserError, match="this server holds nothing of run"):
            learner.check_name("id", origin=origin)
    assert read_run(client, run_name) is not None
    assert read_record(client, keys.beside(1)) is None

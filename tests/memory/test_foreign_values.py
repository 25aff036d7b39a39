"""What somebody else has put under our keys: wrong numbers, and values of another type."""

import re
import threading
from collections.abc import Callable

import pytest

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.experience_reader import ExperienceReader
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.scripts import last_sequence
from rainbow_iqn_apex.memory.messages import RoundEnd, encode_message
from tests.memory.inbox import decode
from tests.memory.links import actor_link, after, expected, learner_link, play, played, rounds_of, weights

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("short_reads")]

# --- the number in an actor's state ---

BOGUS = [b"0", b"1", b"3", b"5", b"999", b"9" * 19]


@pytest.mark.parametrize("bogus", BOGUS)
@pytest.mark.parametrize("foreign", ["", "9-0"])
def test_a_wrong_number_in_the_state_makes_nobody_send_again(
    client: Client, run_name: str, bogus: bytes, foreign: str
) -> None:
    """Mutation: COMMIT, or `_known`, takes the number in the state for what Redis holds."""
    with learner_link(client, run_name) as learner, actor_link(client, run_name) as actor:
        learner.publish(0, weights(0))
        play(actor, 1, 2)
        play(actor, 3)
        play(actor, 4)
        client.hset(actor.keys.state(0), "sequence", bogus)
        if foreign:
            client.xadd(actor.keys.log(0), {"m": encode_message(RoundEnd(0))}, id=foreign)
        with after(0, lambda: learner.publish(1, weights(1))):
            actor.wait_for_version(1)  # while it waits, it looks whether Redis has lost something
        play(actor, 5)
        play(actor, 6)
        assert [round_ for round_ in played(client, run_name) if round_] == [1, 2, 3, 4, 5, 6]
        assert actor.saved() == (b"state after 6", 11 if foreign else 6)


@pytest.mark.parametrize("bogus", BOGUS)
def test_a_successor_of_a_wrong_number_goes_on_after_the_last_message(
    client: Client, run_name: str, bogus: bytes
) -> None:
    with actor_link(client, run_name) as actor:
        play(actor, 1, 2, 3, 4)
        client.hset(actor.keys.state(0), "sequence", bogus)
    with actor_link(client, run_name) as successor:
        assert successor.saved(repeats=True)
        play(successor, 5)
        play(successor, 6)
    assert rounds_of(client, run_name) == expected(6)


# --- values of other types ---

Use = Callable[[ActorClient, LearnerClient], object]
USES: dict[str, Use] = {
    "log": lambda actor, _: play(actor, 2),
    "log while waiting": lambda actor, _: actor.wait_for_version(5),
    "log at a start": lambda actor, _: actor.saved(),
    "log to trim": lambda _, learner: learner.trim({0: 1}),
    "log to resume": lambda _, learner: last_sequence(learner._client, learner.keys.log(0)),
    "actors": lambda actor, learner: ExperienceReader(
        actor._client, learner.keys, 1, decode, threading.Event(), joining=True
    ),
    "state": lambda actor, _: play(actor, 2),
    "state at a start": lambda actor, _: actor.saved(),
    "actor": lambda actor, _: play(actor, 2),
    "versions": lambda actor, _: actor.newest_version(),
    "weights": lambda actor, _: actor.weights(0),
    "run": lambda actor, _: actor.record(),
    "run to write": lambda _, learner: learner.write_progress("running", 0, 0, {}),
    "learner": lambda _, learner: learner.publish(1, b""),
}


@pytest.mark.parametrize("what", USES)
def test_a_value_of_another_type_is_named(client: Client, run_name: str, what: str) -> None:
    with learner_link(client, run_name) as learner, actor_link(client, run_name) as actor:
        learner.write_progress("running", 0, 0, {})
        learner.publish(0, weights(0))
        play(actor, 1)
        keys = actor.keys
        key = {
            "log": keys.log(0), "actors": keys.actors, "state": keys.state(0), "actor": keys.actor_lease(0),
            "versions": keys.versions, "weights": keys.weights(0), "run": keys.run, "learner": keys.learner_lease,
        }[what.split()[0]]  # fmt: skip
        client.delete(key)
        client.sadd(key, "somebody else's")
        with pytest.raises(RunError) as caught:
            USES[what](actor, learner)
        client.delete(key)
    told = str(caught.value)
    assert f"the Redis key {key} holds another type of value" in told and "delete it with redis-cli" in told
    assert len(told.splitlines()) == 1


def test_a_first_commit_beside_a_value_of_another_type_appends_nothing(client: Client, run_name: str) -> None:
    # Mutation: let COMMIT write the actor's number down after its messages.
    with actor_link(client, run_name) as actor:
        client.set(actor.keys.actors, "somebody else's")
        with pytest.raises(RunError, match=f"the Redis key {re.escape(actor.keys.actors)} holds another type"):
            play(actor, 1, 2)
        assert rounds_of(client, run_name) == []
        client.delete(actor.keys.actors)
        play(actor, 1, 2)
    assert rounds_of(client, run_name) == expected(2)

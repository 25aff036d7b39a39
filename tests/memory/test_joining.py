"""Actors that a learner did not expect, and actors that have left."""

import threading

import pytest

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.learner_client import LearnerClient
from rainbow_iqn_apex.memory.broker.log import ExperienceReader
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS, Crew
from rainbow_iqn_apex.memory.messages import Episode, Joined, RoundEnd, encode_message
from tests.memory.inbox import ids, open_inbox, take
from tests.memory.links import entries_of

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("short_reads")]


def play(client: Client, keys: Keys, actor: int, *rounds: int) -> None:
    """Append the ends of these rounds as an actor does, and leave."""
    with ActorClient(client, keys.name, keys.run_id, actor, threading.Event()) as link:
        saved = link.saved()
        link.commit([*([] if saved else [Joined(rounds[0])]), *map(RoundEnd, rounds)], b"state")


def take_ids(inbox: ExperienceReader, count: int) -> list[tuple[int, int]]:
    """Who has sent the next messages, and their numbers, in order."""
    return sorted(ids(take(inbox, count)))


def test_an_actor_of_any_number_is_taken_in(client: Client, keys: Keys, capsys: pytest.CaptureFixture[str]) -> None:
    play(client, keys, 7, 0)  # before the learner has begun
    with open_inbox(client, keys, 1, joining=True) as inbox:
        assert [actor for actor, _ in ids(inbox.take_backlog())] == [7, 7]
        play(client, keys, 0, 0)
        play(client, keys, MAX_ACTORS - 1, 0, 1)
        play(client, keys, 7, 1)
        assert take_ids(inbox, 6) == [(0, 1), (0, 2), (7, 3), *((MAX_ACTORS - 1, n) for n in (1, 2, 3))]
        assert inbox.received == {0: 2, 7: 3, MAX_ACTORS - 1: 3}
    assert capsys.readouterr().out == f"Actor {MAX_ACTORS - 1} joins\n"


def test_in_lockstep_nobody_is_taken_in(client: Client, keys: Keys) -> None:
    with open_inbox(client, keys, 1) as inbox:
        play(client, keys, 1, 0)
        play(client, keys, 0, 0)
        assert take_ids(inbox, 2) == [(0, 1), (0, 2)]
        assert set(inbox.received) == {0}


@pytest.mark.parametrize("number", [b"", b"-1", b"4096", b"9" * 400, b"1.0", b" 1", b"\xff", b"\xd9\xa1"])
def test_numbers_of_no_actor_change_nothing(client: Client, keys: Keys, number: bytes) -> None:
    client.xadd(keys.actors, {"actor": number})
    client.xadd(keys.actors, {"other": b"1"})
    with open_inbox(client, keys, 1, joining=True) as inbox:
        client.xadd(keys.actors, {"actor": number})
        client.xadd(keys.actors, {"other": b"1"})
        play(client, keys, 3, 0)
        assert take_ids(inbox, 2) == [(3, 1), (3, 2)]
        assert set(inbox.received) == {0, 3}


def test_an_actor_writes_its_number_once(client: Client, keys: Keys) -> None:
    for round_ in range(3):
        play(client, keys, 5, round_)
        client.xtrim(keys.log(5), maxlen=0)  # an empty log is no new one
    assert [fields for _, fields in entries_of(client, keys.actors)] == [{b"actor": b"5"}]


def test_messages_that_were_trimmed_count_as_received(client: Client, keys: Keys) -> None:
    """An actor that was away while its messages were learned from and forgotten must not wait for them to be read."""
    play(client, keys, 0, *range(20))
    play(client, keys, 1, *range(20))
    client.xtrim(keys.log(0), maxlen=0, approximate=False)
    client.xtrim(keys.log(1), maxlen=1, approximate=False)
    with open_inbox(client, keys, 1, joining=True) as inbox:
        assert take_ids(inbox, 1) == [(1, 21)]
        assert inbox.received == {0: 21, 1: 21}
        play(client, keys, 0, 20)
        assert take_ids(inbox, 1) == [(0, 22)]


def test_trimmed_messages_that_are_sent_again_are_no_rest(client: Client, keys: Keys) -> None:
    """As after the loss of all that Redis held: nobody needs them, and nobody waits for them."""
    play(client, keys, 0, *range(20))
    client.xtrim(keys.log(0), maxlen=0, approximate=False)
    with open_inbox(client, keys, 1) as inbox:
        client.delete(keys.log(0), keys.state(0))
        play(client, keys, 0, *range(20))
        assert list(inbox.take_rest()) == []
        assert inbox.read == {0: 21}


def test_a_backlog_that_redis_loses_is_given_up(client: Client, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is read; one actor has gone, and the other goes on, and shows that Redis works."""
    monkeypatch.setattr("rainbow_iqn_apex.memory.broker.log._REST_S", 0.5)
    for actor in (0, 1):
        play(client, keys, actor, *range(300))
    with open_inbox(client, keys, 2, ahead=16) as inbox:
        backlog = inbox.take_backlog()
        first = next(backlog)
        client.delete(keys.log(0), keys.state(0), keys.log(1), keys.state(1))
        client.xadd(keys.log(0), {"m": encode_message(RoundEnd(300))}, id="302-0")
        rest = [*backlog]
    assert first and first.id == (0, 1) and 0 < len(rest) < 602


def test_rounds_of_those_who_have_left_are_not_waited_for(client: Client, keys: Keys) -> None:
    """Three actors have played rounds 0 and 1; of actor 2, the log was trimmed; two have left."""
    for actor in range(3):
        play(client, keys, actor, 0, 1)
    client.xtrim(keys.log(2), maxlen=0)
    with open_inbox(client, keys, 1, known=3) as inbox:
        rounds = [ids(inbox.take_round(round_, 3)) for round_ in range(2)]
        assert rounds == [[(0, 1), (0, 2), (1, 1), (1, 2)], [(0, 3), (1, 3)]]
        play(client, keys, 0, 2)
        assert ids(inbox.take_round(2)) == [(0, 4)]


def test_what_an_actor_left_unfinished_does_not_come_back_with_it(client: Client, keys: Keys) -> None:
    """Actor 1 leaves in round 1, and plays again from round 3 on."""
    play(client, keys, 0, 0, 1, 2, 3)
    play(client, keys, 1, 0)
    with ActorClient(client, keys.name, keys.run_id, 1, threading.Event()) as link:
        link.saved()
        link.commit([Episode({"actor": 1, "env": 0, "episode": 0}), Joined(3)], b"state")
    play(client, keys, 1, 3)
    with open_inbox(client, keys, 2) as inbox:
        rounds = [inbox.take_round(0), inbox.take_round(1, 1), inbox.take_round(2, 1), inbox.take_round(3, 2, 1)]
        assert [ids(round_) for round_ in rounds] == [
            [(0, 1), (0, 2), (1, 1), (1, 2)], [(0, 3)], [(0, 4)], [(0, 5), (1, 5)],
        ]  # fmt: skip


def test_an_actor_leaves_when_lockstep_goes_on_with_others(client: Client, run_name: str) -> None:
    crews = (Crew(0, 0, 2, 5),)
    with LearnerClient(client, run_name, {}, 2) as learner:
        learner.lead("id", crews)
        with ActorClient(client, run_name, "id", 0, threading.Event(), crews) as actor:
            assert actor.record().crews == crews
            learner.lead("id", (*crews, Crew(3, 30, 2, 5), Crew(4, 40, 1, 10)))
            with pytest.raises(UserError, match=r"--nb-actor.*start this one again"):
                actor.record()
        with ActorClient(client, run_name, "id", 1, threading.Event()) as free:  # without lockstep
            assert len(free.record().crews) == 3

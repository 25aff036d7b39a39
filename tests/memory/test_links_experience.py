"""Experience goes through servers that restart and lose what was not on their disk: each message exactly once."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import pytest

from rainbow_iqn_apex.common.errors import RunError, Stopped
from rainbow_iqn_apex.memory.broker import connection
from rainbow_iqn_apex.memory.broker import leases as lease
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.scripts import log_extent
from rainbow_iqn_apex.memory.messages import RoundEnd, encode_message
from tests.chaos.proxy import Proxy
from tests.conftest import RedisServer
from tests.deadline import wait_until
from tests.memory.links import actor_link, after, entries_of, expected, learner_link, play, rounds_of, weights

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("short_reads")]


def test_a_successor_finds_what_was_left(client: Client, run_name: str) -> None:
    with actor_link(client, run_name) as actor:
        assert actor.saved() is None
        play(actor, 1, 2)
        play(actor, 3)
    with actor_link(client, run_name) as successor:
        assert successor.saved() == (b"state after 3", 3)
        play(successor, 4)
    assert rounds_of(client, run_name) == expected(4)


@pytest.mark.parametrize("rounds", [(4,), (4, 5, 6, 7)])
def test_an_actor_that_was_stopped_for_too_long_does_not_go_on_where_a_successor_has_come_and_gone(
    client: Client, run_name: str, rounds: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease.Lease, "_keep", lambda *_: None)  # it has not looked after its lease yet
    with actor_link(client, run_name) as stopped:
        play(stopped, 1, 2, 3)
        client.delete(stopped.keys.actor_lease(0))
        with actor_link(client, run_name) as successor:
            assert successor.saved() == (b"state after 3", 3)
            play(successor, 4, 5)
        with pytest.raises(RunError, match=r"actor 0 .*lost its lease"):
            play(stopped, *rounds)
        assert not client.exists(stopped.keys.actor_lease(0))
    with actor_link(client, run_name) as successor:
        assert successor.saved() == (b"state after 5", 5)
    assert rounds_of(client, run_name) == expected(5)


def test_trimming_keeps_what_the_replay_holds(client: Client, run_name: str) -> None:
    with learner_link(client, run_name) as learner, actor_link(client, run_name) as actor:
        play(actor, 1, 2, 3)
        learner.trim({0: 3, 1: 7})
        assert rounds_of(client, run_name) == expected(3)[2:]
        learner.trim({0: 4})
        assert rounds_of(client, run_name) == []
        assert log_extent(learner._client, learner.keys.log(0)).last == 3
        play(actor, 4)
        assert [number for number, _ in rounds_of(client, run_name)] == [4]


def test_an_actor_goes_on_after_what_a_person_has_written(client: Client, run_name: str) -> None:
    with actor_link(client, run_name) as actor:
        play(actor, 1, 2)
        client.xadd(actor.keys.log(0), {"m": encode_message(RoundEnd(9))}, id="1700000000000-7")
        play(actor, 3, 4)
        play(actor, 5)
        assert actor.saved() == (b"state after 5", 1700000000003)


@pytest.mark.parametrize("lost", [0, 1, 2, 3])
def test_what_a_restart_lost_is_sent_again(own_server: RedisServer, own_client: Client, lost: int) -> None:
    """A restart that loses nothing takes the scripts alone."""
    with actor_link(own_client, "run") as actor:
        sizes = [own_server.log.stat().st_size]
        for first in (1, 3, 5):
            play(actor, first, first + 1)
            sizes.append(own_server.log.stat().st_size)
        own_server.restart_without(since=sizes[3 - lost])
        assert len(rounds_of(own_client, "run")) == 6 - 2 * lost  # the loss is real
        play(actor, 7)
        assert rounds_of(own_client, "run") == expected(7)
        assert actor.saved() == (b"state after 7", 7)


def test_an_empty_server_gets_what_is_kept(own_server: RedisServer, own_client: Client) -> None:
    """The lease is gone, too: the actor must take it again before it writes."""
    with actor_link(own_client, "run") as actor:
        play(actor, 1, 2)
        own_server.restart_without(since=0)
        play(actor, 3)
        assert rounds_of(own_client, "run") == expected(3)
        assert own_client.get(actor.keys.actor_lease(0)) == actor.lease.token


@contextmanager
def stopped_once_all_is_there(client: Client, name: str, stop: threading.Event) -> Iterator[None]:
    """An actor in the block is stopped when three messages are in its log, and not before."""

    def look() -> None:
        try:
            wait_until(lambda: rounds_of(client, name) == expected(3), "what was lost")
        finally:
            stop.set()

    with after(0, look), pytest.raises(Stopped):
        yield
    assert rounds_of(client, name) == expected(3)


def test_a_waiting_actor_sends_again_what_a_restart_lost(own_server: RedisServer, own_client: Client) -> None:
    """In lockstep it has nothing new to say before the learner has read what it said: it must find out by itself."""
    stop = threading.Event()
    with actor_link(own_client, "run", stop=stop) as actor, learner_link(own_client, "run") as learner:
        learner.publish(0, weights(0))
        play(actor, 1)
        size = own_server.log.stat().st_size
        play(actor, 2, 3)
        own_server.restart_without(since=size)
        assert len(rounds_of(own_client, "run")) == 1  # the loss is real
        with stopped_once_all_is_there(own_client, "run", stop):
            actor.wait_for_version(1)


def test_a_record_from_before_a_restart_is_not_believed(own_server: RedisServer, own_client: Client) -> None:
    # Mutation: wait only for a record that is lost: the actor would number its messages as some that were read.
    with learner_link(own_client, "run") as learner, actor_link(own_client, "run") as actor:
        learner.write_progress("running", 1, 1, {0: 2})
        assert actor.written_record().t_learner == 1
        size = own_server.log.stat().st_size
        learner.write_progress("running", 2, 2, {0: 4})
        own_server.restart_without(since=size)
        assert actor.record().t_learner == 1, "the loss is real"
        with after(0.5, lambda: learner.write_progress("running", 2, 2, {0: 4})):
            assert actor.written_record().t_learner == 2


@pytest.mark.parametrize("repeats", [True, False])
def test_a_successor_goes_on_after_what_the_learner_has_read(
    own_server: RedisServer, own_client: Client, monkeypatch: pytest.MonkeyPatch, *, repeats: bool
) -> None:
    monkeypatch.setattr(lease, "TTL_MS", 1000)  # a restarted server has forgotten that the actor gave up its lease
    with learner_link(own_client, "run") as learner:
        with actor_link(own_client, "run") as actor:
            play(actor, 1, 2)
            size = own_server.log.stat().st_size
            play(actor, 3, 4)
        own_server.restart_without(since=size)
        learner.write_progress("running", 0, 0, {0: 4, 1: 0})
        with actor_link(own_client, "run") as successor:
            assert successor.saved(repeats=repeats) == ((b"state after 2", 2) if repeats else None)
            play(successor, 3, 4, 5)
        numbers = [1, 2, 3, 4, 5] if repeats else [1, 2, 5, 6, 7]  # the learner takes those from 5 on
        assert [number for number, _ in rounds_of(own_client, "run")] == numbers

        own_server.restart_without(since=0)
        learner.write_progress("running", 0, 0, {0: 7, 1: 0})
        with actor_link(own_client, "run") as successor:
            assert successor.saved(repeats=repeats) is None
            play(successor, 0)
        assert [number for number, _ in rounds_of(own_client, "run")] == [8]


def test_an_actor_that_starts_on_an_empty_server_waits_for_what_the_learner_has_read(
    own_server: RedisServer, own_client: Client
) -> None:
    with learner_link(own_client, "run") as learner:
        with actor_link(own_client, "run") as actor:
            play(actor, 1, 2, 3)
        own_server.restart_without(since=0)
        with actor_link(own_client, "run") as successor:
            with after(0.3, lambda: learner.write_progress("running", 0, 0, {0: 3})):
                assert successor.written_record().status == "running"
            assert successor.saved() is None
            play(successor, 0)
    assert [number for number, _ in rounds_of(own_client, "run")] == [4]


def test_what_is_older_than_a_few_seconds_is_not_kept(
    own_server: RedisServer, own_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rainbow_iqn_apex.memory.broker.actor_client._KEPT_S", 0.2)
    monkeypatch.setattr(lease, "TTL_MS", 400)
    with actor_link(own_client, "run") as actor:
        play(actor, 1)
        play(actor, 2)
        time.sleep(0.3)
        play(actor, 3)
        own_server.restart_without(since=0)
        wait_until(lambda: own_client.exists(actor.keys.actor_lease(0)), "the lease to be renewed", 10)
        play(actor, 4)
        assert rounds_of(own_client, "run") == expected(4)[2:]


def test_an_actor_with_a_state_waits_until_the_learner_has_shown_that_it_lives(client: Client, run_name: str) -> None:
    """A killed learner's record may be older than what the next one goes on from, but a server may still hold it."""
    lease_key = Keys(run_name, "id").learner_lease
    with learner_link(client, run_name) as learner, actor_link(client, run_name) as actor:
        learner.write_progress("running", 0, 0, {})
        play(actor, 1)
        client.pexpire(lease_key, lease.TTL_MS // 2)  # as if it was not renewed of late
        actor.wait_for_living_learner()
        assert client.pttl(lease_key) > lease.TTL_MS // 2


def test_an_actor_with_a_state_waits_until_the_learner_that_holds_the_lease_has_begun(
    client: Client, run_name: str
) -> None:
    # Mutation: `_learner_lives` that does not look at the record.
    with learner_link(client, run_name) as learner, actor_link(client, run_name) as actor:
        play(actor, 1)
        with after(0.5, lambda: learner.write_progress("running", 0, 0, {0: 1})):
            actor.wait_for_living_learner()
            assert actor.record().status == "running"


def test_a_server_that_stays_away_is_given_up_once(
    own_server: RedisServer, own_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: doubt every RunError, as if it were one about what Redis holds.
    monkeypatch.setattr(connection, "AWAY_S", 0.2)
    begun: list[str] = []
    begin = own_client.away.begin

    def note() -> None:
        begun.append("a command")
        begin()

    monkeypatch.setattr(own_client.away, "begin", note)
    actor = actor_link(own_client, "run")
    own_server.close()
    asks: list[Callable[[], object]] = [actor.record, actor.unread, lambda: actor.weights(0)]
    for commands, ask in enumerate(asks, 1):
        with pytest.raises(RunError, match="stays away"):
            ask()
        assert len(begun) == commands


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bits_of_commands_and_replies_end_a_connection_and_no_actor(
    client: Client, run_name: str, redis_port: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replies that are none, refusals of commands that nobody gave, damaged records: each is asked for again."""
    # Mutations: believe a refusal, or a damaged record, at once; end with an answer that is none.
    monkeypatch.setattr(connection, "_SOCKET_TIMEOUT_S", 1.5)  # for replies whose length has become larger
    with learner_link(client, run_name, afresh=True) as learner, Proxy(redis_port) as proxy:
        learner.publish(0, weights(0))
        far = connection.connect("127.0.0.1", proxy.port)
        with actor_link(far, run_name) as actor:
            assert actor.saved() is None
            proxy.damage = Random(seed)
            try:
                for number in range(1, 41):
                    play(actor, number)
                    for ask in (actor.record, actor.unread, actor.newest_version, lambda: actor.weights(0)):
                        ask()
            finally:
                proxy.damage = None
    assert proxy.damaged_pieces > 3
    numbers = [int(name.split(b"-")[0]) for name, _ in entries_of(client, Keys(run_name, "id").log(0))]
    assert len(numbers) == 40 and numbers == sorted(set(numbers)), "each message once, and in order"

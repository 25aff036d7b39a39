"""Both ends of the transport, with servers that restart and lose what was not on their disk."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from memory import wire
from memory.broker import lease
from memory.broker.actor_client import ActorClient, RunOver, wait_for_run
from memory.broker.connection import Client, connect
from memory.broker.learner_client import LearnerClient
from memory.broker.run_status import Owner, RunStatus, read_run, write_run
from memory.broker.transport import Keys
from memory.errors import RunError, Stopped, UserError
from memory.messages import Joined, RoundEnd, decode_message, encode_message
from tests.conftest import RedisServer
from tests.deadline import wait_until

pytestmark = pytest.mark.redis
SETTINGS = {"seed": 1, "discount": 0.99, "game": "pong"}
HERE = Owner.of(Path())


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.broker.actor_client.BLOCK_MS", 50)


@pytest.fixture
def own_client(own_server: RedisServer) -> Iterator[Client]:
    with closing(connect("127.0.0.1", own_server.port)) as client:
        yield client


def actor_link(client: Client, name: str, run_id: str = "id", stop: threading.Event | None = None) -> ActorClient:
    return ActorClient(client, name, run_id, 0, stop or threading.Event())


@contextmanager
def learner_link(client: Client, name: str, run_id: str = "id", *, afresh: bool = False) -> Iterator[LearnerClient]:
    with LearnerClient(client, name, SETTINGS, 2) as link:
        link.lead(run_id, afresh=afresh)
        yield link


def play(link: ActorClient, *rounds: int) -> None:
    """One commit; the number of a message is its round."""
    link.commit([RoundEnd(number) for number in rounds], b"state after %d" % rounds[-1])


def rounds_of(client: Client, name: str) -> list[tuple[int, object]]:
    """Number and content of all messages."""
    entries = client.xrange(Keys(name, "id").log(0))
    return [(int(i.split(b"-")[0]), decode_message(fields[b"m"], 1000)) for i, fields in entries]


def expected(last: int) -> list[tuple[int, object]]:
    return [(number, RoundEnd(number)) for number in range(1, last + 1)]


@contextmanager
def after(seconds: float, what: Callable[[], object]) -> Iterator[None]:
    timer = threading.Timer(seconds, what)
    timer.start()
    yield
    timer.join()


# --- a run begins ---


def test_an_actor_waits_for_its_learner(client: Client, run_name: str) -> None:
    with learner_link(client, run_name) as learner:
        with after(0.2, lambda: learner.progress("running", 3, 4, {})):
            record = wait_for_run(client, run_name, SETTINGS, threading.Event())
        assert record == RunStatus("id", "running", SETTINGS, 3, 4, owner=HERE)
        told = r"--discount is 0.9 here and 0.99 .*\n--seed is 2 here and 1 .*--run-name"
        with after(0.2, lambda: learner.progress("running", 3, 5, {})), pytest.raises(UserError, match=told):
            wait_for_run(client, run_name, SETTINGS | {"discount": 0.9, "seed": 2}, threading.Event())
        told = r"--new-one is 1 here and None"
        with after(1.1, lambda: learner.progress("running", 3, 5, {})), pytest.raises(UserError, match=told):
            wait_for_run(client, run_name, SETTINGS | {"new_one": 1}, threading.Event())


def test_what_a_killed_learner_left_refuses_nobody(client: Client, run_name: str) -> None:
    # Mutation: refuse without regard to whether the record has been written since.
    changed = SETTINGS | {"nb_actor": 3}
    with learner_link(client, run_name) as killed:
        killed.progress("running", 3, 4, {})
        token = client.get(killed.keys.learner_lease)
    client.set(killed.keys.learner_lease, token or b"", px=700)  # as if it had not been given back

    def succeed() -> None:
        with LearnerClient(client, run_name, changed, 3) as learner:  # waits for the lease
            learner.lead("id")
            learner.progress("running", 5, 6, {})
            time.sleep(1)

    with after(0, succeed):
        assert wait_for_run(client, run_name, changed, threading.Event()).t_learner == 5


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
            learner.progress("stopped", 3, 4, {0: 1})
    with learner_link(client, run_name) as learner:
        assert learner.last_sequence(0) == 2
        assert len(rounds_of(client, run_name)) == 2
    with learner_link(client, run_name, "new", afresh=True) as learner:
        assert read_run(client, run_name) == RunStatus("new", "starting", SETTINGS, 0, 0, owner=HERE)
        assert learner.last_sequence(0) == 0
        assert not client.exists(Keys(run_name, "id").log(0), Keys(run_name, "id").state(0))
    assert len(rounds_of(client, run_name + "2")) == 2


def test_the_numbers_of_an_abandoned_run_count_for_nothing(client: Client, run_name: str) -> None:
    # Mutation: leave in the record what was read of actors that the new run does not have yet.
    with learner_link(client, run_name) as learner:
        learner.progress("running", 0, 0, {0: 500, 4095: 400})
    with learner_link(client, run_name, "new", afresh=True) as learner:
        with ActorClient(client, run_name, "new", 4095, threading.Event()) as actor:
            assert actor.saved() is None
            play(actor, 0)
        assert learner.last_sequence(4095) == 1
        learner.progress("running", 0, 0, {4095: 1})
    with learner_link(client, run_name, "new") as learner:
        assert client.hget(learner.keys.run, "read:4095") == b"1", "a run that goes on keeps its own"


def test_an_actor_of_an_abandoned_run_leaves_nothing_behind(
    client: Client, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "TTL_MS", 400)
    with actor_link(client, run_name) as actor, learner_link(client, run_name) as learner:
        learner.progress("running", 0, 0, {})
        play(actor, 1)
        client.delete(learner.keys.learner_lease)
        with learner_link(client, run_name, "new", afresh=True) as successor:
            successor.progress("running", 0, 0, {})
            time.sleep(0.5)  # the actor has renewed its lease
            with pytest.raises((RunOver, RunError)):
                play(actor, 2)
    assert client.keys(f"*{run_name}*:id:*") == []


def test_the_steps_that_actors_are_told_never_fall(client: Client, run_name: str) -> None:
    """A learner that resumes counts again; what was told before bounds what its actors can have played."""
    with learner_link(client, run_name) as learner:
        assert learner.told == 0
        learner.progress("running", 30, 400, {})
    with learner_link(client, run_name) as learner:
        assert learner.told == 400
        learner.progress("running", 10, 200, {})
        record = read_run(client, run_name)
        assert record and (record.t_learner, record.t_actors) == (10, 400)
    with learner_link(client, run_name) as learner:
        assert learner.told == 400
        learner.progress("running", 40, 500, {})
        assert learner.told == 500
    with LearnerClient(client, run_name, SETTINGS, 2) as learner:
        learner.lead("new", afresh=True)
        assert learner.told == 0


@pytest.mark.parametrize("successor", ["leads on", "leads another run", "has led another run and left"])
def test_a_learner_that_was_stopped_for_too_long_writes_no_more(
    client: Client, run_name: str, successor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease.Lease, "_keep", lambda _: None)  # it has not looked after its lease yet
    run_id = "id" if successor == "leads on" else "new"
    with learner_link(client, run_name) as stopped, actor_link(client, run_name, run_id) as actor:
        client.delete(stopped.keys.learner_lease)
        link = LearnerClient(client, run_name, SETTINGS, 2)
        with link:
            link.lead(run_id, afresh=True)
            link.publish(0, b"weights", restart=True)
            play(actor, 1, 2)
            link.progress("running", 5, 6, {0: 2})
            if "left" in successor:
                link.__exit__()
            before = {key: client.dump(key) for key in client.keys(f"riqx:{{{run_name}}}*")}
            for write in (
                lambda: stopped.publish(1, b"stale"),
                lambda: stopped.progress("running", 3, 4, {0: 1}),
                lambda: stopped.trim({0: 2}),
            ):
                with pytest.raises(RunError, match=r"learner of run .* lost its lease"):
                    write()
            assert {key: client.dump(key) for key in client.keys(f"riqx:{{{run_name}}}*")} == before


# --- experience ---


def test_a_successor_finds_what_was_left(client: Client, run_name: str) -> None:
    with actor_link(client, run_name) as actor:
        assert actor.saved() is None
        play(actor, 1, 2)
        play(actor, 3)
    with actor_link(client, run_name) as successor:
        assert successor.saved() == (b"state after 3", 3)
        play(successor, 4)
    assert rounds_of(client, run_name) == expected(4)


def test_unread_messages(client: Client, run_name: str) -> None:
    with learner_link(client, run_name) as learner, actor_link(client, run_name) as actor:
        assert actor.unread() == 0
        play(actor, 1, 2, 3)
        assert actor.unread() == 3
        learner.progress("running", 0, 0, {0: 2, 1: 9})
        assert actor.unread() == 1


def test_trimming_keeps_what_the_replay_holds(client: Client, run_name: str) -> None:
    with learner_link(client, run_name) as learner, actor_link(client, run_name) as actor:
        play(actor, 1, 2, 3)
        learner.trim({0: 3, 1: 7})
        assert rounds_of(client, run_name) == expected(3)[2:]
        learner.trim({0: 4})
        assert rounds_of(client, run_name) == []
        assert learner.last_sequence(0) == 3
        play(actor, 4)
        assert [number for number, _ in rounds_of(client, run_name)] == [4]


@pytest.mark.parametrize(
    ("foreign", "then"), [("3-0", 4), ("1700000000000-7", 1700000000001), (f"{10**14}-0", 10**14 + 1)]
)
def test_an_actor_goes_on_after_what_somebody_else_has_written(
    client: Client, run_name: str, foreign: str, then: int
) -> None:
    with actor_link(client, run_name) as actor:
        play(actor, 1, 2)
        client.xadd(actor.keys.log(0), {"m": encode_message(RoundEnd(9))}, id=foreign)
        client.xdel(actor.keys.log(0), foreign)  # its number stays taken
        play(actor, 3, 4)
        play(actor, 5)
    assert [number for number, _ in rounds_of(client, run_name)] == [1, 2, then, then + 1, then + 2]
    with actor_link(client, run_name) as successor:
        assert successor.saved() == (b"state after 5", then + 2)
        play(successor, 6)


def test_what_is_sent_again_goes_after_it_too(own_server: RedisServer, own_client: Client) -> None:
    with actor_link(own_client, "run") as actor:
        play(actor, 1, 2)
        size = own_server.log.stat().st_size
        play(actor, 3, 4)
        own_server.restart_without(since=size)
        own_client.xadd(actor.keys.log(0), {"m": encode_message(RoundEnd(0))}, id="9-0")
        play(actor, 5)
        played = [message.round for _, message in rounds_of(own_client, "run") if isinstance(message, RoundEnd)]
        assert played == [1, 2, 0, 3, 4, 5]
        assert actor.saved() == (b"state after 5", 12)


def test_no_number_is_left_after_the_last(client: Client, run_name: str) -> None:
    with actor_link(client, run_name) as actor:
        client.xadd(actor.keys.log(0), {"m": b""}, id=f"{2**53}-0")
        with pytest.raises(RunError, match="start the run afresh"):
            play(actor, 1)


@pytest.mark.parametrize("lost", [0, 1, 2, 3])
def test_what_a_restart_lost_is_sent_again(own_server: RedisServer, own_client: Client, lost: int) -> None:
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


def test_a_waiting_actor_sends_again_what_a_restart_lost(own_server: RedisServer, own_client: Client) -> None:
    """In lockstep it has nothing new to say before the learner has read what it said: it must find out by itself."""
    stop = threading.Event()
    with actor_link(own_client, "run", stop=stop) as actor, learner_link(own_client, "run") as learner:
        learner.publish(0, weights(0), restart=True)
        play(actor, 1)
        size = own_server.log.stat().st_size
        play(actor, 2, 3)
        own_server.restart_without(since=size)
        assert len(rounds_of(own_client, "run")) == 1  # the loss is real
        with after(1.5, stop.set), pytest.raises(Stopped):
            actor.wait_for_version(1)
        assert rounds_of(own_client, "run") == expected(3)


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
        learner.progress("running", 0, 0, {0: 4, 1: 0})
        with actor_link(own_client, "run") as successor:
            assert successor.saved(repeats=repeats) == (b"state after 2", 2)
            play(successor, 3, 4, 5)
        numbers = [1, 2, 3, 4, 5] if repeats else [1, 2, 5, 6, 7]  # the learner takes those from 5 on
        assert [number for number, _ in rounds_of(own_client, "run")] == numbers

        own_server.restart_without(since=0)
        learner.progress("running", 0, 0, {0: 7, 1: 0})
        with actor_link(own_client, "run") as successor:
            assert successor.saved(repeats=repeats) is None
            play(successor, 0)
        assert [number for number, _ in rounds_of(own_client, "run")] == [8]


def test_what_is_older_than_a_few_seconds_is_not_kept(
    own_server: RedisServer, own_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memory.broker.actor_client._KEPT_S", 0.2)
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


def test_a_server_that_stays_away_ends_the_actor(own_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.broker.connection.AWAY_S", 0.5)
    with closing(connect("127.0.0.1", own_server.port)) as client, actor_link(client, "run") as actor:
        own_server.stop()
        for use in (lambda: play(actor, 1), actor.record, actor.unread, actor.newest_version, actor.saved):
            with pytest.raises(RunError):
                use()


# --- weights and the end ---


def weights(version: int) -> bytes:
    return wire.encode(wire.Tag.WEIGHTS, {"version": version})


def test_weights_reach_a_waiting_actor(client: Client, run_name: str) -> None:
    with learner_link(client, run_name) as learner, actor_link(client, run_name) as actor:
        learner.progress("running", 0, 0, {})
        assert actor.newest_version() == -1
        for version in range(3):
            with after(0.1, lambda version=version: learner.publish(version, weights(version), restart=version == 0)):
                assert actor.wait_for_version(version) == version
            assert actor.weights(version).meta["version"] == version
        assert actor.wait_for_version(1) == 2
        assert actor.weights(0).meta["version"] == 2  # what has taken its place


def test_weights_before_the_ones_that_meet_an_empty_server_come_back(
    own_server: RedisServer, own_client: Client
) -> None:
    with learner_link(own_client, "run") as learner, actor_link(own_client, "run") as actor:
        for version in range(3):
            learner.publish(version, weights(version), restart=version == 0)
        own_server.restart_without(since=own_server.log.stat().st_size)
        learner.publish(3, weights(3))
        for version in (2, 3):
            assert actor.weights(version).meta["version"] == version


def test_restoring_and_publishing_at_once_leave_the_newest(client: Client, run_name: str) -> None:
    """What is restored by one thread is never older than what another has published since it was kept."""
    with learner_link(client, run_name) as learner:
        learner.publish(0, weights(0), restart=True)
        done = threading.Event()

        def restore() -> None:
            while not done.is_set():
                client.delete(learner.keys.versions)  # what a restart loses
                learner.progress("running", 0, 0, {})

        with after(0, restore):
            for version in range(1, 200):
                learner.publish(version, weights(version))
            done.set()
        learner.progress("running", 0, 0, {})
        for version in (198, 199):
            packet = client.get(learner.keys.weights(version))
            assert isinstance(packet, bytes)
            assert wire.decode(packet).meta["version"] == version


def test_lost_weights_are_published_again(own_server: RedisServer, own_client: Client) -> None:
    stop = threading.Event()
    with learner_link(own_client, "run") as learner, actor_link(own_client, "run", stop=stop) as actor:
        for version in range(3):
            learner.publish(version, weights(version), restart=version == 0)
        own_server.restart_without(since=own_server.log.stat().st_size)
        assert actor.newest_version() == -1  # the loss is real
        learner.progress("running", 0, 0, {})
        assert actor.newest_version() == 2
        assert actor.weights(2).meta["version"] == 2
        with after(1, stop.set):  # in lockstep, an actor may be one version behind
            assert actor.weights(1).meta["version"] == 1


def test_weights_of_a_learner_that_has_gone_back_are_not_taken_for_newer_ones(client: Client, run_name: str) -> None:
    with learner_link(client, run_name) as learner, actor_link(client, run_name) as actor:
        learner.progress("running", 0, 0, {})
        learner.publish(1, weights(1), restart=True)  # where version 3 was when the actor asked which is the newest
        with after(0.3, lambda: learner.publish(3, weights(3))):
            assert actor.weights(3).meta["version"] == 3


def test_versions_that_somebody_else_has_announced_are_taken_back(client: Client, run_name: str) -> None:
    with learner_link(client, run_name) as learner, actor_link(client, run_name) as actor:
        learner.publish(0, weights(0), restart=True)
        client.xadd(learner.keys.versions, {"v": b"9"}, id="1700000000000-0")
        with after(0.3, lambda: learner.publish(1, weights(1))):
            assert actor.weights(actor.newest_version(), or_newest=True).meta["version"] == 1
        assert actor.newest_version() == 1
        client.xadd(learner.keys.versions, {"v": b"9"}, id="1700000000000-0")
        learner.progress("running", 0, 0, {})
        assert actor.newest_version() == 1
        learner.publish(2, weights(2))
        assert actor.newest_version() == 2


ENDS: dict[str, Callable[[Client, str], object]] = {
    "stopped": lambda client, name: write_run(client, name, RunStatus("id", "stopped", {}, 0, 0), {}),
    "finished": lambda client, name: write_run(client, name, RunStatus("id", "finished", {}, 0, 0), {}),
    "another run": lambda client, name: write_run(client, name, RunStatus("id2", "running", {}, 0, 0), {}),
}


@pytest.mark.parametrize("how", ENDS)
def test_a_waiting_actor_hears_of_the_end(client: Client, run_name: str, how: str) -> None:
    with actor_link(client, run_name) as actor:
        assert actor.record() == RunStatus("id", "running", {}, 0, 0)  # a server that lost the record
        with after(0.1, lambda: ENDS[how](client, run_name)), pytest.raises(RunOver):
            actor.wait_for_version(0)
        with pytest.raises(RunOver):
            actor.weights(0)


@pytest.mark.parametrize("status", ["stopped", "finished"])
def test_nothing_is_taken_in_once_the_learner_has_left_in_good_order(
    client: Client, run_name: str, status: str
) -> None:
    with actor_link(client, run_name) as actor:
        with learner_link(client, run_name) as learner:
            learner.progress("running", 0, 0, {})
            play(actor, 1)
            learner.progress(status, 0, 0, {})
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
        learner.progress("running", 0, 0, {})
        play(actor, 1)
        learner.progress("stopped", 0, 0, {})
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


def test_a_learner_that_lost_its_place_publishes_nothing(
    client: Client, run_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "TTL_MS", 400)
    with learner_link(client, run_name) as learner:
        client.set(learner.keys.learner_lease, b"another")
        time.sleep(0.3)
        with pytest.raises(RunError, match="another process"):
            learner.publish(0, b"")
        with pytest.raises(RunError, match="another process"):
            learner.progress("running", 0, 0, {})
    assert read_run(client, run_name) == RunStatus("id", "starting", SETTINGS, 0, 0, owner=HERE)


def test_messages_are_not_tied_to_one_server_process(own_server: RedisServer, own_client: Client) -> None:
    """Restarts that lose nothing, one after each commit: the scripts are loaded again."""
    with actor_link(own_client, "run") as actor:
        for number in itertools.islice(itertools.count(1), 4):
            play(actor, number)
            own_server.restart_without(since=own_server.log.stat().st_size)
        assert rounds_of(own_client, "run") == expected(4)

"""The scripts, keys and records on real servers; links that lose their server are in test_links_experience.py."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any

import pytest

from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.memory.broker.admin import forget_run, forget_strays
from rainbow_iqn_apex.memory.broker.connection import Client, connect
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.record import RunStatus, read_run
from rainbow_iqn_apex.memory.broker.scripts import Commit, Scripts, log_extent, newest_version
from tests.chaos.listener import Listener
from tests.conftest import RedisServer
from tests.deadline import Clock
from tests.memory.links import entries_of, write_run

pytestmark = pytest.mark.redis
TOKEN = b"token of the lease"


@pytest.fixture
def keys(client: Client, run_name: str) -> Keys:
    """Keys of a run whose actor 0 holds its lease."""
    keys = Keys(run_name, "id")
    client.set(keys.actor_lease(0), TOKEN)
    return keys


def log_of(client: Client, keys: Keys, actor: int = 0) -> list[tuple[int, bytes]]:
    return [(int(name.split(b"-")[0]), fields[b"m"]) for name, fields in entries_of(client, keys.log(actor))]


def everything(client: Client, keys: Keys) -> Any:
    return log_of(client, keys), client.hgetall(keys.state(0)), client.xinfo_stream(keys.log(0))


def commit(client: Client, keys: Keys, first: int, *messages: bytes, gap: bool = False, token: bytes = TOKEN) -> Any:
    state = b"state after " + messages[-1]
    return Scripts(client).commit(keys, 0, token, Commit(first, list(messages), state), allow_gap=gap)


# --- commit ---


def test_a_commit_after_a_lost_reply_changes_nothing(client: Client, keys: Keys) -> None:
    commit(client, keys, 1, b"a")
    commit(client, keys, 2, b"b", b"c")
    before = everything(client, keys)
    for gap in (False, True):
        assert commit(client, keys, 2, b"b", b"c", gap=gap) is None
        assert everything(client, keys) == before
    # The mutation: another owner's commit of the same numbers is no retry, but one's that was suspended for too long.
    client.set(keys.actor_lease(0), b"other")
    with pytest.raises(RunError, match="lost its lease"):
        commit(client, keys, 2, b"b", b"c", token=b"other")
    assert everything(client, keys) == before


@pytest.mark.parametrize("holder", [b"", b"somebody else", TOKEN + b"!"])
def test_nothing_is_written_under_a_foreign_lease(client: Client, keys: Keys, holder: bytes) -> None:
    commit(client, keys, 1, b"a")
    before = everything(client, keys)
    client.set(keys.actor_lease(0), holder)
    for gap in (False, True):
        with pytest.raises(RunError, match="lease"):
            commit(client, keys, 2, b"b", gap=gap)
        assert everything(client, keys) == before


@pytest.mark.parametrize("first", [1, 2, 3])
def test_numbers_must_increase(client: Client, keys: Keys, first: int) -> None:
    commit(client, keys, 1, b"a", b"b", b"c")
    before = everything(client, keys)
    assert commit(client, keys, first, b"x", b"y", b"z", b"z") == 3
    assert everything(client, keys) == before
    assert commit(client, keys, first, b"x", b"y", b"z", b"z", gap=True) == 3
    assert everything(client, keys) == before


def test_a_gap_is_reported_and_can_be_allowed(client: Client, keys: Keys) -> None:
    commit(client, keys, 1, b"a")
    before = everything(client, keys)
    assert commit(client, keys, 4, b"d") == 1
    assert everything(client, keys) == before
    assert commit(client, keys, 4, b"d", gap=True) is None
    assert log_of(client, keys) == [(1, b"a"), (4, b"d")]


def test_numbers_beyond_what_lua_prints_by_itself(client: Client, keys: Keys) -> None:
    last = 10**14 - 1
    assert commit(client, keys, last - 1, b"a", b"b", gap=True) is None
    assert log_extent(client, keys.log(0)).last == last
    assert commit(client, keys, last - 1, b"a", b"b") is None
    assert commit(client, keys, last + 1, b"c") is None
    assert [number for number, _ in log_of(client, keys)] == [last - 1, last, last + 1]


# --- weights ---


def versions_of(client: Client, keys: Keys) -> list[int]:
    return [int(name.split(b"-")[0]) for name, _ in entries_of(client, keys.versions)]


def test_weights_have_two_slots_and_increasing_versions(client: Client, keys: Keys) -> None:
    scripts = Scripts(client)
    for version in range(4):
        assert scripts.publish(keys, TOKEN, {version: b"weights %d" % version}, restart=version == 0) == version - 1
        assert versions_of(client, keys) == list(range(max(0, version - 1), version + 1))
        for known in range(max(0, version - 1), version + 1):
            assert client.get(keys.weights(known)) == b"weights %d" % known
    assert scripts.publish(keys, TOKEN, {3: b"weights 3"}, restart=False) == 3  # a retry after a lost reply
    assert versions_of(client, keys) == [2, 3]
    scripts.publish(keys, TOKEN, {1: b"again 1"}, restart=True)  # a learner that resumes further back
    assert versions_of(client, keys) == [1]
    assert client.get(keys.weights(1)) == b"again 1"
    scripts.publish(keys, TOKEN, {4: b"four", 5: b"five"}, restart=False)
    assert versions_of(client, keys) == [4, 5]
    assert [client.get(keys.weights(version)) for version in (4, 5)] == [b"four", b"five"]


def test_weights_stay_out_of_the_append_only_file(own_server: RedisServer, own_client: Client) -> None:
    for version in range(3):
        Scripts(own_client).publish(Keys("run", "id"), TOKEN, {version: bytes(5_000_000)}, restart=version == 0)
    assert own_server.log.stat().st_size < 10_000
    own_client.set("mutation", bytes(5_000_000))  # anything else is in the file
    assert own_server.log.stat().st_size > 5_000_000


# --- runs ---

RECORD = RunStatus("id", "running", {"seed": 1, "game": "pong", "rate": 0.25, "off": False}, 400, 500)
NAMES = ["a", "a*", "a[b]", "ab", "a?", "a\\b", "aa", "b", "a:id:log", "ä", "{a}", "[^a]", "*"]


@pytest.mark.parametrize("target", NAMES)
def test_only_the_named_run_is_forgotten(client: Client, run_name: str, target: str) -> None:
    all_keys: dict[tuple[str, str], set[str]] = {}
    for name in (run_name + name for name in NAMES):
        write_run(client, name, RECORD, {})
        for run_id in ("id", "id2", "*"):
            keys = Keys(name, run_id)
            owned = {keys.versions, keys.weights(0), keys.log(0), keys.state(12), keys.actor_lease(0)}
            all_keys[name, run_id] = owned
            client.mset(dict.fromkeys(owned, b""))
    for run_id in ("id", "*"):
        forget_run(client, run_name + target, run_id)
        gone = {key for key in set().union(*all_keys.values()) if not client.exists(key)}
        assert gone == all_keys.pop((run_name + target, run_id))
        for key in gone:
            client.set(key, b"")
    assert all(read_run(client, run_name + name) for name in NAMES), "records are replaced, not deleted"


@pytest.mark.parametrize("shards", [1, 2])
def test_strays_of_a_name_are_deleted_and_no_other_s(
    client: Client, run_name: str, shards: int, capsys: pytest.CaptureFixture[str]
) -> None:
    # Mutations: take any key behind the tag (leases of learners); delete where another run's name ends like a shard's.
    own = Keys(run_name, "id", shards=shards)
    others = [Keys(run_name + name, "old") for name in ("/0", "/1", "/0.1", "}:b", "}:b:log:1", "2")]
    for keys in others:
        write_run(client, keys.name, RECORD, {})
    kept = [key for keys in (own, *others) for key in written(keys)] + [own.lease_of(1), own.learner_lease]
    strays = written(replace(own, run_id="0a1b-2c")) + written(replace(own, run_id="old"))
    free = [key for key in strays if not any(key.startswith(keys.tag + ":") for keys in others)]
    client.mset(dict.fromkeys(kept + strays, b""))
    forget_strays(client, own)
    assert [key for key in kept if not client.exists(key)] == []
    assert [key for key in free if client.exists(key)] == []
    assert f"Deleted {len(set(free))} keys of runs {run_name!r}" in capsys.readouterr().out
    forget_strays(client, own)
    assert capsys.readouterr().out == ""


def written(keys: Keys) -> list[str]:
    """Name keys of every kind that a run has."""
    found = [keys.learner_report, f"{keys.beside(0).beginning}inference:actor:secret"]
    for shard in keys.every_shard():
        for group in (shard, replace(shard, evaluation=True), replace(shard, inference=True)):
            found += [group.versions, group.weights(0), group.actors, group.film("best")]
    for group in (keys, replace(keys, evaluation=True), replace(keys, inference=True)):
        for actor in range(3):
            found += [group.log(actor), group.state(actor), group.report(actor)]
            found.append(group.actor_lease(actor))
    return found


# --- values of other types ---

USES: dict[str, Callable[[Client, Keys], object]] = {
    "log": lambda client, keys: commit(client, keys, 1, b"a"),
    "state": lambda client, keys: commit(client, keys, 1, b"a"),
    "actor_lease": lambda client, keys: commit(client, keys, 1, b"a"),
    "run": lambda client, keys: read_run(client, keys.name),
    "versions": newest_version,
    "learner_lease": lambda client, keys: Scripts(client).publish(keys, TOKEN, {0: b"w"}, restart=False),
}


@pytest.mark.parametrize("what", USES)
def test_a_value_of_another_type_is_named(client: Client, keys: Keys, what: str) -> None:
    named = getattr(keys, what)
    key = named if isinstance(named, str) else named(0)
    client.delete(key)
    client.sadd(key, "somebody else's")
    with pytest.raises(RunError) as caught:
        USES[what](client, keys)
    client.delete(key)
    assert f"the Redis key {key} holds another type of value" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


# --- connecting ---


class Stranger(Listener):
    """Somebody else's server: says the same to everything, nothing for None, and hangs up for an empty text."""

    def __init__(self, says: bytes | None) -> None:
        super().__init__()
        self._says = says

    def _serve(self, near: socket.socket) -> None:
        with near, suppress(OSError):
            while near.recv(4096) and self._says != b"":
                near.sendall(self._says or b"")


class Dripping(Stranger):
    """Answers the first `well` commands, and begins an answer that it never ends."""

    def __init__(self, well: int) -> None:
        super().__init__(b"$23\r\nredis_version:7.0.0\r\n\r\n\r\n")
        self._well = well

    def _serve(self, near: socket.socket) -> None:
        with near, suppress(OSError):
            while near.recv(4096) and self._well > 0:
                self._well -= 1
                near.sendall(self._says or b"")
            near.sendall(b"$1000000000\r\n")
            while True:
                near.sendall(b"x")
                time.sleep(0.1)


def check_refused(port: int) -> None:
    clock = Clock()
    with pytest.raises(UserError) as refused:
        connect("127.0.0.1", port).close()
    assert clock.seconds() < 10
    assert str(refused.value).startswith(f"--host-redis 127.0.0.1 --port-redis {port}: ")


STRANGERS = {
    "a web server": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "an SSH server": b"SSH-2.0-OpenSSH_9.6\r\n",
    "one that agrees": b"+OK\r\n",
    "one that counts": b":5\r\n",
    "one of an odd version": b"$22\r\nredis_version:unstable\r\n",
    "one that is too old": b"$19\r\nredis_version:6.0.9\r\n",
    "one that hangs up": b"",
    "one that is silent": None,
}


@pytest.mark.parametrize("who", STRANGERS)
def test_another_server_is_no_redis(who: str) -> None:
    with Stranger(STRANGERS[who]) as listener:
        check_refused(listener.port)


def test_an_answer_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as short, Dripping(well=0) as listener:
        short.setattr("rainbow_iqn_apex.memory.broker.connection._PROBE_S", 1.0)
        check_refused(listener.port)
    monkeypatch.setattr("rainbow_iqn_apex.memory.broker.connection.AWAY_S", 1.0)
    with Dripping(well=3) as listener, closing(connect("127.0.0.1", listener.port)) as client:  # both SELECT, and INFO
        clock = Clock()
        with pytest.raises(RunError, match="tried for 1 sec, stays away: Timeout reading"):
            client.get("key")
        assert clock.seconds() < 10


def test_nobody_answers() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        check_refused(bound.getsockname()[1])


@pytest.fixture
def unreachable() -> Iterator[int]:
    """A port whose queue of connections is full: like a machine behind a firewall, it does not even refuse."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = int(listener.getsockname()[1])
        queue = [socket.socket() for _ in range(4)]
        for waiting in queue:
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield port
        for waiting in queue:
            waiting.close()


def test_nobody_can_be_reached(unreachable: int) -> None:
    check_refused(unreachable)


def test_a_password_is_asked_for(own_server: RedisServer, own_client: Client) -> None:
    own_client.config_set("requirepass", "secret")
    check_refused(own_server.port)

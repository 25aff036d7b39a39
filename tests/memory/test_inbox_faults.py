"""A reader of messages when a stop, an error, a busy learner, a flood or a restart of the server comes between."""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing

import pytest

from rainbow_iqn_apex.common.errors import RunError, Stopped
from rainbow_iqn_apex.common.waiting import WaitReporter
from rainbow_iqn_apex.memory.broker import log
from rainbow_iqn_apex.memory.broker.access import find_server
from rainbow_iqn_apex.memory.broker.connection import Away, Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.log import AT_ONCE, Entry, ExperienceReader
from rainbow_iqn_apex.memory.broker.topology import open_servers
from rainbow_iqn_apex.memory.chunk import ChunkId
from tests.cluster import Cluster, started
from tests.conftest import RedisServer
from tests.deadline import Clock, Deadline, wait_until
from tests.memory.inbox import episode, ids, open_inbox, say, stopped_after, take
from tests.memory.links import actor_link
from tests.servers import BUNDLED

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("short_reads")]


@pytest.fixture(scope="module")
def cluster_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with started(Cluster(tmp_path_factory.mktemp("cluster") / "nodes", BUNDLED, 1, replicas=False)) as cluster:
        yield cluster.url


@pytest.fixture(params=["one server", "a cluster"])
def any_client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """Connected to one server, and to a cluster, where each command finds its server by a key."""
    if request.param == "one server":
        yield request.getfixturevalue("client")
    else:
        with closing(open_servers(find_server("", 0, request.getfixturevalue("cluster_url"), {}))) as client:
            yield client


def wait_calls(inbox: ExperienceReader) -> dict[str, Callable[[], object]]:
    def wait() -> None:
        for _ in range(1000):
            inbox.wait(WaitReporter("a test"))

    return {"round": lambda: list(inbox.take_round(0)), "wait": wait}


def test_a_read_of_many_logs_asks_for_few_messages_of_each(
    client: Client, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply that is too large closes the connection; until then the server has all of it in memory."""
    # Mutation: ask for 32 messages of each log.
    monkeypatch.setattr(log, "READ_BYTES", 30_000)
    for actor in range(64):
        say(client, keys, actor, 1, *(episode(i) for i in range(32)))
    before = client.info("stats")["total_connections_received"]
    with open_inbox(client, keys, actors=64) as inbox:
        take(inbox, 64 * 32)
    assert client.info("stats")["total_connections_received"] == before, "none was closed"


@pytest.mark.parametrize("how", ["round", "wait"])
def test_a_stop_ends_waiting(client: Client, keys: Keys, how: str) -> None:
    with stopped_after(0.2) as stop, open_inbox(client, keys, stop=stop) as inbox:
        clock = Clock()
        with pytest.raises(Stopped):
            wait_calls(inbox)[how]()
        assert clock.seconds() < 2


@pytest.mark.parametrize("how", ["round", "wait"])
def test_an_error_of_the_reader_reaches_who_waits(client: Client, keys: Keys, how: str) -> None:
    with open_inbox(client, keys) as inbox:
        client.set(keys.log(1), b"no stream")
        wanted = (
            rf"^reading the experience failed: the Redis key {re.escape(keys.log(1))} holds another type .* delete it"
        )
        with pytest.raises(RunError, match=wanted):
            wait_calls(inbox)[how]()
        with pytest.raises(RunError, match=wanted):
            inbox.take_all()


def test_a_learner_that_is_busy_holds_the_reader_back(client: Client, keys: Keys) -> None:
    say(client, keys, 0, 1, *(episode(i) for i in range(50)))
    with open_inbox(client, keys, ahead=2 * AT_ONCE) as inbox:
        wait_until(lambda: inbox._entries.qsize() == 2, "a full queue", 5)
        time.sleep(0.1)
        assert sum(map(len, inbox._entries.queue)) == 2 * AT_ONCE
        assert ids(take(inbox, 50)) == [(0, i) for i in range(1, 51)]
    with open_inbox(client, keys, ahead=AT_ONCE) as inbox:  # nobody reads: it can be closed all the same
        time.sleep(0.1)


LARGE = b"x" * 3_000_000


def test_a_read_brings_no_more_bytes_than_it_may(
    client: Client, keys: Keys, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mutation: take replies of any size. Messages of all sizes are told apart, each once, and others go on."""
    monkeypatch.setattr("rainbow_iqn_apex.memory.broker.log.READ_BYTES", 100_000)
    most = 0
    receive = Away.receive

    def watch(self: Away, count: int) -> None:
        nonlocal most
        receive(self, count)
        most = max(most, self._began.received)

    monkeypatch.setattr(Away, "receive", watch)
    middle = b"y" * 60_000  # within the limit, but beyond what is a message here
    say(client, keys, 0, 1, episode(0), *[LARGE] * 20, episode(1), middle, middle, *(episode(i) for i in range(2, 40)))
    say(client, keys, 1, 1, LARGE, *(episode(i) for i in range(100)))
    with open_inbox(client, keys) as inbox:
        entries = take(inbox, 140)
        say(client, keys, 0, 63, episode(40), LARGE, episode(41))
        entries += take(inbox, 2)
    for actor, count in ((0, 42), (1, 100)):
        assert [entry.message for entry in entries if entry.id.actor == actor] == [episode(i) for i in range(count)]
    assert most < 250_000, "a reply is given up after the first bytes too many"
    assert "message of 3000000 bytes, 100000 are allowed" in capsys.readouterr().out


def test_an_actor_that_floods_the_log_keeps_nobody_waiting(
    any_client: Client, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: no `rotate`."""
    client = any_client
    monkeypatch.setattr("rainbow_iqn_apex.memory.broker.log.READ_BYTES", 100_000)
    say(client, keys, 0, 1, *[b"z" * 99_000] * 30)
    say(client, keys, 1, 1, episode(0))
    with open_inbox(client, keys) as inbox:
        entries: list[Entry] = []
        deadline = Deadline(10, "the other's message")
        while not entries:
            deadline.check()
            entries = inbox.take_all(1)  # or a reader that is far ahead would have all read at once
        assert ids(entries) == [(1, 1)] and inbox.read[0] < 10


@pytest.mark.parametrize(("kept", "gone"), [((3, 6, 7), "4 to 5"), ((3, 4, 7), "5 to 6"), ((), "4 to 7")])
def test_messages_that_go_while_no_learner_runs_are_named(
    client: Client, keys: Keys, capsys: pytest.CaptureFixture[str], kept: Iterable[int], gone: str
) -> None:
    """An earlier learner has counted 3 messages, and the log has been trimmed as far as it needs."""
    # Mutation: a reader that is not told of the earlier one.
    say(client, keys, 1, 1, *map(episode, range(7)))
    client.xdel(keys.log(1), *(f"{number}-0" for number in {*range(1, 8)} - set(kept)))
    with open_inbox(client, keys) as inbox:
        inbox.settle({1: 3})
        assert ids(inbox.take_backlog()) == [(1, number) for number in kept]
        wait_until(lambda: not inbox.take_all() and inbox.read[1] == 7, "all to count as read", 10)
    assert capsys.readouterr().out.endswith(f"; the newest are {gone} of actor 1\n")


def test_messages_that_a_restart_lost_are_read_once(own_server: RedisServer, own_client: Client) -> None:
    with actor_link(own_client, "run") as actor, open_inbox(own_client, actor.keys) as inbox:
        actor.commit([episode(1), episode(2)], b"")
        size = own_server.log.stat().st_size
        actor.commit([episode(3)], b"")
        assert ids(take(inbox, 3)) == [(0, 1), (0, 2), (0, 3)]
        own_server.restart_without(since=size)
        assert own_client.xlen(actor.keys.log(0)) == 2
        actor.commit([episode(4), episode(5)], b"")
        assert take(inbox, 2) == [Entry(ChunkId(0, 4), episode(4)), Entry(ChunkId(0, 5), episode(5))]
        assert own_client.xlen(actor.keys.log(0)) == 5

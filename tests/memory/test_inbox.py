import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from memory.broker.actor_client import ActorClient
from memory.broker.connection import Client, _Away, connect
from memory.broker.experience_reader import ExperienceReader
from memory.broker.stream_reader import READ_AHEAD, Entry
from memory.broker.transport import READ_BYTES, Keys
from memory.chunk import ChunkId
from memory.errors import RunError, Stopped
from memory.messages import Episode, Joined, Message, RoundEnd, decode_message, encode_message
from memory.waiting import WaitReporter
from tests.conftest import RedisServer
from tests.deadline import Clock, Deadline, wait_until

pytestmark = pytest.mark.redis


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.broker.stream_reader.BLOCK_MS", 30)


@pytest.fixture
def keys(run_name: str) -> Keys:
    return Keys(run_name, "id")


def decode(data: bytes) -> Message:
    return decode_message(data, 1000)


@contextmanager
def open_inbox(
    client: Client,
    keys: Keys,
    actors: int = 2,
    stop: threading.Event | None = None,
    kind: type[ExperienceReader] = ExperienceReader,
    ahead: int = READ_AHEAD,
) -> Iterator[ExperienceReader]:
    with closing(kind(client, keys, actors, decode, stop or threading.Event(), ahead=ahead)) as inbox:
        yield inbox


def say(client: Client, keys: Keys, actor: int, first: int, *messages: Message | bytes) -> None:
    for number, message in enumerate(messages, first):
        data = message if isinstance(message, bytes) else encode_message(message)
        client.xadd(keys.log(actor), {"m": data}, id=f"{number}-0")


def episode(number: int) -> Episode:
    return Episode({"number": number})


def take(inbox: ExperienceReader, count: int) -> list[Entry]:
    """Exactly this many entries, as they arrive."""
    entries = inbox.take_all()
    deadline = Deadline(5, f"{count} entries")
    while len(entries) < count:
        deadline.check()
        inbox.wait(WaitReporter("a test"))
        entries += inbox.take_all()
    assert len(entries) == count
    return entries


def ids(entries: Iterable[Entry]) -> list[tuple[int, int]]:
    return [(entry.id.actor, entry.id.sequence) for entry in entries]


def test_each_actor_is_heard_in_its_order_and_once(client: Client, keys: Keys) -> None:
    say(client, keys, 0, 1, *(episode(i) for i in range(100)))
    with open_inbox(client, keys) as inbox:
        say(client, keys, 1, 7, *(episode(i) for i in range(50)))
        say(client, keys, 0, 101, *(episode(i) for i in range(100, 120)))
        entries = take(inbox, 170)
        for actor, first, count in ((0, 1, 120), (1, 7, 50)):
            own = [entry for entry in entries if entry.id.actor == actor]
            assert own == [Entry(ChunkId(actor, first + i), episode(i)) for i in range(count)]
        assert inbox.read == {0: 120, 1: 56}
        assert inbox.take_all() == []


# --- rounds ---

ROUNDS = 3
STORY: dict[int, list[Message]] = {
    0: [Joined(0), episode(0), RoundEnd(0), episode(1), episode(2), RoundEnd(1), RoundEnd(2), episode(3)],
    1: [Joined(0), RoundEnd(0), RoundEnd(1), episode(4), RoundEnd(2), episode(5)],
}
EXPECTED = [
    [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)],
    [(0, 4), (0, 5), (0, 6), (1, 3)],
    [(0, 7), (1, 4), (1, 5)],
]


def check_rounds(client: Client, keys: Keys, seed: int, kind: type[ExperienceReader] = ExperienceReader) -> None:
    """Two actors that write whenever they like."""

    def write(actor: int, rng: random.Random) -> None:
        for number, message in enumerate(STORY[actor], 1):
            time.sleep(rng.choice([0, 0, 0.001, 0.004]))
            say(client, keys, actor, number, message)

    writers = [threading.Thread(target=write, args=(actor, random.Random(10 * seed + actor))) for actor in STORY]
    with open_inbox(client, keys, kind=kind) as inbox:
        for writer in writers:
            writer.start()
        found = [ids(inbox.take_round(round_)) for round_ in range(ROUNDS)]
        for writer in writers:
            writer.join()
        assert found == EXPECTED
        assert inbox.read == {0: 7, 1: 5}
        assert sorted(ids(take(inbox, 2))) == [(0, 8), (1, 6)]


def test_rounds_do_not_depend_on_anybody_s_speed(client: Client, run_name: str) -> None:
    for seed in range(20):
        check_rounds(client, Keys(run_name, str(seed)), seed)


class AsItComes(ExperienceReader):
    def take_round(self, round_: int) -> Iterable[Entry]:
        patience = WaitReporter("a test")
        while min(self._played.values()) < round_:
            self.wait(patience)
            yield from self.take_all()


def test_the_check_notices_an_order_of_arrival(client: Client, run_name: str) -> None:
    with pytest.raises(AssertionError):
        for seed in range(20):
            check_rounds(client, Keys(run_name, str(seed)), seed, AsItComes)


def test_an_actor_that_joins_late_is_not_waited_for_earlier(client: Client, keys: Keys) -> None:
    say(client, keys, 0, 1, Joined(0), RoundEnd(0), RoundEnd(1))
    say(client, keys, 1, 1, Joined(2), episode(0), RoundEnd(2))
    with open_inbox(client, keys) as inbox:
        assert ids(inbox.take_round(-1)) == []
        assert ids(inbox.take_round(0)) == [(0, 1), (0, 2)]
        assert ids(inbox.take_round(1)) == [(0, 3), (1, 1)]
        say(client, keys, 0, 4, RoundEnd(2))
        assert ids(inbox.take_round(2)) == [(0, 4), (1, 2), (1, 3)]


def test_a_trimmed_log_begins_in_the_middle(client: Client, keys: Keys) -> None:
    say(client, keys, 0, 1, Joined(0), RoundEnd(0), RoundEnd(1), RoundEnd(2))
    client.xtrim(keys.log(0), minid="3-0", approximate=False)
    with open_inbox(client, keys, actors=1) as inbox:
        assert ids(inbox.take_round(0)) == []
        assert ids(inbox.take_round(1)) == [(0, 3)]
        assert ids(inbox.take_round(2)) == [(0, 4)]


# --- the backlog ---


@contextmanager
def stopped_after(seconds: float) -> Iterator[threading.Event]:
    stop = threading.Event()
    timer = threading.Timer(seconds, stop.set)
    timer.start()
    try:
        yield stop
    finally:
        timer.cancel()
        timer.join()


def check_backlog(client: Client, keys: Keys, expected: list[tuple[int, int]]) -> None:
    with stopped_after(3) as stop, open_inbox(client, keys, stop=stop) as inbox:
        say(client, keys, 1, 90, episode(9))  # not stored when the inbox was opened
        assert ids(inbox.take_backlog()) == expected
        assert ids(take(inbox, 1)) == [(1, 90)]


def test_a_stop_is_heeded_between_two_messages(client: Client, keys: Keys) -> None:
    say(client, keys, 0, 1, Joined(0), *(episode(i) for i in range(9)), RoundEnd(0))
    for take_in in (ExperienceReader.take_backlog, lambda inbox: inbox.take_round(0)):
        stop = threading.Event()
        with open_inbox(client, keys, stop=stop, actors=1) as inbox:
            entries = iter(take_in(inbox))
            taken = [next(entries), next(entries)]
            stop.set()
            with pytest.raises(Stopped):
                next(entries)
            assert inbox.read == {0: 2}, "and none is lost"
            assert ids([*taken, *inbox.take_rest()]) == [(0, number) for number in range(1, 12)]


def test_the_rest_is_what_the_log_holds_by_then(client: Client, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    stop.set()
    with open_inbox(client, keys, stop=stop) as inbox:
        say(client, keys, 0, 1, *(episode(i) for i in range(300)))  # more than a reader holds
        say(client, keys, 1, 5, RoundEnd(7), episode(0))
        rest = inbox.take_rest()
        say(client, keys, 1, 7, episode(1))
        assert sorted(ids(rest)) == [*((0, number) for number in range(1, 301)), (1, 5), (1, 6)]
        assert ids(inbox.take_rest()) == [(1, 7)]
        assert ids(inbox.take_rest()) == []
        monkeypatch.setattr("memory.broker.experience_reader._REST_S", 0.1)
        monkeypatch.setattr(
            "memory.broker.experience_reader.newest_sequence", lambda *_: 1000
        )  # of a server that has lost its newest
        with pytest.raises(RunError, match="have gone from Redis"):
            list(inbox.take_rest())


def test_the_backlog_is_what_was_stored_before(client: Client, keys: Keys) -> None:
    say(client, keys, 0, 1, episode(0), episode(1))
    say(client, keys, 1, 1, *(episode(i) for i in range(40)))
    check_backlog(client, keys, [(0, 1), (0, 2), *((1, i) for i in range(1, 41))])


def test_an_empty_backlog_is_not_waited_for(client: Client, keys: Keys) -> None:
    check_backlog(client, keys, [])


def test_a_backlog_whose_end_is_malformed(client: Client, keys: Keys) -> None:
    say(client, keys, 0, 1, episode(0), b"nonsense")
    check_backlog(client, keys, [(0, 1)])


def test_a_backlog_that_was_trimmed_away(client: Client, keys: Keys) -> None:
    say(client, keys, 0, 1, episode(0), episode(1))
    client.xtrim(keys.log(0), maxlen=0, approximate=False)
    check_backlog(client, keys, [])


# --- what goes wrong ---


def wait_calls(inbox: ExperienceReader) -> dict[str, Callable[[], object]]:
    return {
        "round": lambda: list(inbox.take_round(0)),
        "wait": lambda: [inbox.wait(WaitReporter("a test")) for _ in range(1000)],
    }


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


def test_a_server_that_stays_away_reaches_who_waits(own_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.broker.connection.AWAY_S", 0.5)
    keys = Keys("run", "id")
    with closing(connect("127.0.0.1", own_server.port)) as client, open_inbox(client, keys) as inbox:
        own_server.stop()
        with pytest.raises(RunError, match="reading the experience failed"):
            list(inbox.take_round(0))


def test_a_learner_that_is_busy_holds_the_reader_back(client: Client, keys: Keys) -> None:
    say(client, keys, 0, 1, *(episode(i) for i in range(50)))
    with open_inbox(client, keys, ahead=4) as inbox:
        wait_until(lambda: inbox._reader.entries.qsize() == 4, "a full queue", 5)
        time.sleep(0.1)
        assert inbox._reader.entries.qsize() == 4
        assert ids(take(inbox, 50)) == [(0, i) for i in range(1, 51)]
    with open_inbox(client, keys, ahead=4) as inbox:  # nobody reads: it can be closed all the same
        time.sleep(0.1)


LARGE = b"x" * 3_000_000


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_a_read_brings_no_more_bytes_than_it_may(
    client: Client, keys: Keys, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mutation: take replies of any size. Messages of all sizes are told apart, each once, and others go on."""
    monkeypatch.setattr("memory.broker.stream_reader.READ_BYTES", 100_000)
    most = 0
    receive = _Away.receive

    def watch(self: _Away, count: int) -> None:
        nonlocal most
        receive(self, count)
        most = max(most, self._began.received)

    monkeypatch.setattr(_Away, "receive", watch)
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
    stored = {fields[b"bytes"] for _, fields in client.xrange(keys.quarantine(0))}  # type: ignore[union-attr]
    assert stored == {b"3000000", b"60000"}
    assert "message of 3000000 bytes, 100000 are allowed" in capsys.readouterr().out


def test_an_actor_that_floods_the_log_keeps_nobody_waiting(
    client: Client, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: no `rotate`."""
    monkeypatch.setattr("memory.broker.stream_reader.READ_BYTES", 100_000)
    say(client, keys, 0, 1, *[b"z" * 99_000] * 30)
    say(client, keys, 1, 1, episode(0))
    with open_inbox(client, keys) as inbox:
        while not (entries := inbox.take_all()):
            inbox.wait(WaitReporter("a test"))
    assert ids(entries) == [(1, 1)]
    assert inbox.read[0] < 10


@pytest.mark.slow
def test_messages_of_60_mb_do_not_fill_the_learner_s_memory(client: Client, keys: Keys) -> None:
    message = bytes(60_000_000)
    for number in range(1, 17):
        client.xadd(keys.log(0), {"m": message}, id=f"{number}-0")
    say(client, keys, 0, 17, episode(0))
    before, most = resident(), 0
    with open_inbox(client, keys) as inbox:
        while not inbox.take_all():
            inbox.wait(WaitReporter("a test"))
            most = max(most, resident())
    client.delete(keys.log(0))
    assert most - before < 3 * READ_BYTES


def test_messages_that_a_restart_lost_are_read_once(own_server: RedisServer) -> None:
    keys = Keys("run", "id")
    with (
        closing(connect("127.0.0.1", own_server.port)) as client,
        ActorClient(client, "run", "id", 0, threading.Event()) as actor,
        open_inbox(client, keys) as inbox,
    ):
        actor.commit([episode(1), episode(2)], b"")
        size = own_server.log.stat().st_size
        actor.commit([episode(3)], b"")
        assert ids(take(inbox, 3)) == [(0, 1), (0, 2), (0, 3)]
        own_server.restart_without(since=size)
        assert client.xlen(keys.log(0)) == 2
        actor.commit([episode(4), episode(5)], b"")
        assert take(inbox, 2) == [Entry(ChunkId(0, 4), episode(4)), Entry(ChunkId(0, 5), episode(5))]
        assert client.xlen(keys.log(0)) == 5

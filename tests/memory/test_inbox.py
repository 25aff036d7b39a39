"""Messages are handed out each once, in each actor's own order: as they come, round by round, or as stored."""

import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rainbow_iqn_apex.common.errors import RunError, Stopped
from rainbow_iqn_apex.common.waiting import WaitReporter
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.log import Entry, ExperienceReader
from rainbow_iqn_apex.memory.chunk import ChunkId
from rainbow_iqn_apex.memory.messages import Joined, Message, RoundEnd
from tests.memory.inbox import episode, ids, open_inbox, say, take

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("short_reads")]


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
EXPECTED = [[(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)], [(0, 4), (0, 5), (0, 6), (1, 3)], [(0, 7), (1, 4), (1, 5)]]


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
    def take_round(self, round_: int, nb_actor: int | None = None, stayed: int | None = None) -> Iterator[Entry]:  # noqa: ARG002
        waiting = WaitReporter("a test")
        while min(self._played.values()) < round_:
            self.wait(waiting)
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


@pytest.mark.parametrize(
    ("stored", "is_trimmed", "expected"),
    [
        ({0: [episode(0), episode(1)], 1: [*map(episode, range(40))]}, False,
         [(0, 1), (0, 2), *((1, i) for i in range(1, 41))]),
        ({}, False, []),
        ({0: [episode(0), b"nonsense"]}, False, [(0, 1)]),
        ({0: [episode(0), episode(1)]}, True, []),
    ],
    ids=["of two actors", "empty", "with a malformed end", "trimmed away"],
)  # fmt: skip
def test_the_backlog_is_what_was_stored_before(
    client: Client, keys: Keys, stored: dict[int, list[Message | bytes]], is_trimmed: bool, expected: list[Any]
) -> None:
    for actor, messages in stored.items():
        say(client, keys, actor, 1, *messages)
        if is_trimmed:
            client.xtrim(keys.log(actor), maxlen=0, approximate=False)
    with open_inbox(client, keys) as inbox:
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
        monkeypatch.setattr("rainbow_iqn_apex.memory.broker.log._REST_S", 0.1)
        monkeypatch.setattr(inbox, "_newest", lambda _: 1000)  # of a server that has lost its newest
        with pytest.raises(RunError, match="have gone from Redis"):
            list(inbox.take_rest())

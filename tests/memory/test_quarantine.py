"""Messages that cannot be read: kept apart with the reason, counted, reported; in lockstep nobody waits for them."""

from functools import partial

import pytest

from rainbow_iqn_apex.common.errors import RunError, Stopped
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.broker import quarantine
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.experience_reader import ExperienceReader
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.quarantine import Quarantine
from rainbow_iqn_apex.memory.broker.stream_reader import Entry
from rainbow_iqn_apex.memory.messages import Episode, Joined, RoundEnd, encode_message
from tests.deadline import Clock, wait_until
from tests.memory.inbox import ids, say, stopped_after, take
from tests.memory.inbox import open_inbox as inbox_of
from tests.memory.links import after, entries_of

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("short_reads")]
BAD = b"\x80nonsense"
open_inbox = partial(inbox_of, actors=1)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rainbow_iqn_apex.memory.broker.experience_reader._IDLE_S", 0.1)


def state(round_: object) -> bytes:
    return wire.encode(wire.Tag.STATE, {"round": round_})


def save(client: Client, keys: Keys, actor: int, sequence: int, state: bytes) -> None:
    """As the actor does in one step with its messages."""
    client.hset(keys.state(actor), mapping={"state": state, "sequence": sequence})


def kept(client: Client, keys: Keys, actor: int = 0) -> dict[str, dict[bytes, bytes]]:
    return {entry.decode(): fields for entry, fields in entries_of(client, keys.quarantine(actor))}


def other_version(version: int) -> bytes:
    whole = bytearray(encode_message(Joined(0)))
    whole[4] = version
    return bytes(whole)


# --- kept, counted, reported ---


def test_what_cannot_be_read_is_kept_with_the_reason_and_the_rest_goes_on(
    client: Client, keys: Keys, capsys: pytest.CaptureFixture[str]
) -> None:
    torn = encode_message(Episode({"number": 5}))[:-1]
    say(client, keys, 0, 1, Joined(0), other_version(2), other_version(0), BAD * 4, torn, Episode({"number": 1}))
    client.xadd(keys.log(0), {"other": b""}, id="7-0")
    say(client, keys, 0, 8, Episode({"actor": 3}), Episode({"actor": 0}))
    with open_inbox(client, keys) as inbox:
        assert [entry.message for entry in take(inbox, 3)] == [
            Joined(0), Episode({"number": 1}), Episode({"actor": 0})
        ]  # fmt: skip
        assert inbox.read[0] == 9
    found = kept(client, keys)
    assert list(found) == ["2-0", "3-0", "4-0", "5-0", "7-0", "8-0"]
    assert found["2-0"][b"reason"] == b"wire version 2 is newer than this program's 1: update this program"
    assert found["3-0"][b"reason"].startswith(b"wire version 0 is older")
    assert found["4-0"][b"data"] == BAD * 4 and found["4-0"][b"bytes"] == b"36"
    assert b"magic" in found["4-0"][b"reason"] and b"checksum" in found["5-0"][b"reason"]
    assert b"another actor's" in found["8-0"][b"reason"]
    printed = capsys.readouterr().out
    assert "message 2 of actor 0" in printed and f"{keys.quarantine(0)}" in printed
    assert "6 so far" in printed and printed.count("\n") == 2


def test_neither_the_log_nor_redis_is_flooded(client: Client, keys: Keys, capsys: pytest.CaptureFixture[str]) -> None:
    box = Quarantine(client, keys)
    for number in range(1, 400):
        box.add(2, b"%d-0" % number, b"x" * 100_000, "reason \n\ud800" * 1000)
    box.report(now=True)
    assert list(kept(client, keys, 2)) == [f"{number}-0" for number in range(400 - quarantine._KEPT_MESSAGES, 400)]
    used = client.memory_usage(keys.quarantine(2))
    assert used is not None and used < 2 * quarantine._KEPT_MESSAGES * quarantine._KEPT_BYTES
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and "399 so far" in lines[1] and all(len(line) < 600 for line in lines)


def test_a_quarantine_that_cannot_be_written_stops_nobody(client: Client, keys: Keys) -> None:
    client.set(keys.quarantine(0), b"no stream")
    say(client, keys, 0, 1, BAD, Joined(0))
    with open_inbox(client, keys) as inbox:
        assert ids(take(inbox, 1)) == [(0, 2)]


def test_a_full_server_stops_nobody_either(own_client: Client, keys: Keys) -> None:
    say(own_client, keys, 0, 1, BAD, Joined(0))
    own_client.config_set("maxmemory", 1)
    clock = Clock()
    with open_inbox(own_client, keys) as inbox:
        assert ids(take(inbox, 1)) == [(0, 2)]
    assert clock.seconds() < 5
    assert not own_client.exists(keys.quarantine(0))


@pytest.mark.parametrize("entry_id", ["5-1", f"{2**64 - 1}-0"])
def test_an_entry_that_no_script_of_ours_has_numbered_is_left_out(client: Client, keys: Keys, entry_id: str) -> None:
    say(client, keys, 0, 1, Joined(0))
    client.xadd(keys.log(0), {"m": encode_message(RoundEnd(0))}, id=entry_id)
    with open_inbox(client, keys) as inbox:
        assert ids(take(inbox, 1)) == [(0, 1)]
        wait_until(lambda: kept(client, keys), "the entry to be kept", 5)
        taken = 5 if entry_id == "5-1" else 1  # a number beyond all counts for nothing
        found: list[Entry] = []

        def is_counted() -> bool:
            found.extend(inbox.take_all())
            return inbox.read[0] == taken

        wait_until(is_counted, "the entry to be counted", 5)
        assert found == []
        assert inbox.received[0] == min(2**53, int(entry_id.split("-")[0]))
    with open_inbox(client, keys) as again:
        assert ids(again.take_backlog()) == [(0, 1)]
    assert list(kept(client, keys)) == [entry_id]


# --- rounds ---


def rounds(inbox: ExperienceReader, *numbers: int) -> list[list[tuple[int, int]]]:
    return [ids(inbox.take_round(number)) for number in numbers]


def test_a_lost_beginning_or_chunk_changes_no_round(client: Client, keys: Keys) -> None:
    say(client, keys, 0, 1, BAD, BAD, RoundEnd(0), BAD, Episode({}), RoundEnd(1))
    with open_inbox(client, keys) as inbox:
        assert rounds(inbox, 0, 1) == [[(0, 3)], [(0, 5), (0, 6)]]


def test_what_came_before_a_lost_end_is_of_the_next_round(client: Client, keys: Keys) -> None:
    say(client, keys, 0, 1, Joined(0), Episode({}), BAD, Episode({}), RoundEnd(1), RoundEnd(2))
    with open_inbox(client, keys) as inbox:
        assert rounds(inbox, 0, 1, 2) == [[(0, 1)], [(0, 2), (0, 4), (0, 5)], [(0, 6)]]


@pytest.mark.parametrize("bogus", [None, 0, 999])
@pytest.mark.parametrize("lost", [2, 5])
def test_lost_ends_that_nobody_would_send_again_are_seen_in_the_actor_s_state(
    client: Client, keys: Keys, lost: int, bogus: int | None
) -> None:
    """The actor has played as far as it may, and waits for weights that come after the round.

    A wrong number beside the state hinders nobody.
    """
    say(client, keys, 0, 1, Joined(0), Episode({}), *[BAD] * lost)
    save(client, keys, 0, 2 + lost if bogus is None else bogus, state(2))
    with open_inbox(client, keys) as inbox:
        assert rounds(inbox, 0, 1) == [[(0, 1)], [(0, 2), (0, 2 + lost)]]
        say(client, keys, 0, 3 + lost, RoundEnd(2))
        assert rounds(inbox, 2) == [[(0, 3 + lost)]]


def test_a_gap_in_the_log_hides_no_end_either(client: Client, keys: Keys) -> None:
    say(client, keys, 0, 1, Joined(0))
    say(client, keys, 0, 4, Episode({}))
    save(client, keys, 0, 4, state(2))
    with open_inbox(client, keys) as inbox:
        assert rounds(inbox, 0, 1) == [[(0, 1)], [(0, 4), (0, 4)]]


def test_an_actor_that_is_still_playing_is_waited_for(client: Client, keys: Keys) -> None:
    say(client, keys, 0, 1, Joined(0), BAD)
    save(client, keys, 0, 2, state(0))
    with open_inbox(client, keys) as inbox, after(0.6, lambda: say(client, keys, 0, 3, RoundEnd(0))):
        assert rounds(inbox, 0) == [[(0, 1), (0, 3)]]


@pytest.mark.parametrize("damaged", [b"", BAD, state("x"), state(None), state(2**62), other_version(9)])
def test_a_run_that_cannot_know_its_round_ends_in_one_line(client: Client, keys: Keys, damaged: bytes) -> None:
    say(client, keys, 0, 1, Joined(0), BAD, BAD)
    save(client, keys, 0, 3, damaged)
    with open_inbox(client, keys) as inbox, pytest.raises(RunError, match=r"actor 0 .* round 0 .* lockstep") as caught:
        list(inbox.take_round(0))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("forged", [0, 3, 10**9])
def test_an_end_that_does_not_follow_is_left_out(client: Client, keys: Keys, forged: int) -> None:
    """Else the learner would wait for this actor no more, and gather its messages without end."""
    say(client, keys, 0, 1, Joined(0), RoundEnd(0), RoundEnd(forged), RoundEnd(1), RoundEnd(2))
    with open_inbox(client, keys) as inbox:
        assert rounds(inbox, 0, 1, 2) == [[(0, 1), (0, 2)], [(0, 4)], [(0, 5)]]
        assert inbox.take_all() == [] and list(kept(client, keys)) == ["3-0"]


class NoState(ExperienceReader):
    def _find_lost_end(self, actor: int, round_: int) -> None:
        pass


def test_without_a_look_at_the_state_the_learner_would_hang(client: Client, keys: Keys) -> None:
    """Or the tests above show nothing."""
    say(client, keys, 0, 1, Joined(0), BAD, BAD)
    save(client, keys, 0, 3, state(2))
    with stopped_after(1) as stop, open_inbox(client, keys, stop=stop, kind=NoState) as inbox, pytest.raises(Stopped):
        list(inbox.take_round(0))

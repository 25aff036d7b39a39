"""Messages that cannot be read: left out, counted, reported; in lockstep nobody waits for them."""

from functools import partial

import pytest

from rainbow_iqn_apex.common.errors import RunError, Stopped
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.broker import log
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.log import ExperienceReader
from rainbow_iqn_apex.memory.messages import Episode, Joined, RoundEnd, encode_message
from tests.memory.inbox import ids, say, stopped_after, take
from tests.memory.inbox import open_inbox as inbox_of
from tests.memory.links import after

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("short_reads")]
BAD = b"\x80nonsense"
open_inbox = partial(inbox_of, actors=1)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rainbow_iqn_apex.memory.broker.log._IDLE_S", 0.1)


def state(round_: object) -> bytes:
    return wire.encode(wire.Tag.STATE, {"round": round_})


def save(client: Client, keys: Keys, actor: int, sequence: int, state: bytes) -> None:
    """As the actor does in one step with its messages."""
    client.hset(keys.state(actor), mapping={"state": state, "sequence": sequence})


def other_version(version: int) -> bytes:
    whole = bytearray(encode_message(Joined(0)))
    whole[4] = version
    return bytes(whole)


# --- left out, counted, reported ---


def test_what_cannot_be_read_is_counted_with_the_reason_and_the_rest_goes_on(
    client: Client, keys: Keys, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_REPORTED_S", 0.0)
    torn = encode_message(Episode({"number": 5}))[:-1]
    say(client, keys, 0, 1, Joined(0), other_version(2), other_version(0), BAD * 4, torn, Episode({"number": 1}))
    client.xadd(keys.log(0), {"other": b""}, id="7-0")
    say(client, keys, 0, 8, Episode({"actor": 0}))
    with open_inbox(client, keys) as inbox:
        assert [entry.message for entry in take(inbox, 3)] == [
            Joined(0),
            Episode({"number": 1}),
            Episode({"actor": 0}),
        ]
        assert inbox.read[0] == 8 and inbox.unreadable == 5
    reasons = [line.partition(" of actor 0: ")[2] for line in capsys.readouterr().out.splitlines()]
    assert reasons[0] == "wire version 2 is newer than this program's 1: update this program"
    assert reasons[1].startswith("wire version 0 is older")
    assert "magic" in reasons[2] and "checksum" in reasons[3] and "shorter than its frame" in reasons[4]


def test_the_log_is_not_flooded(client: Client, keys: Keys, capsys: pytest.CaptureFixture[str]) -> None:
    say(client, keys, 0, 1, *[BAD] * 399, RoundEnd(0))
    with open_inbox(client, keys) as inbox:
        assert ids(take(inbox, 1)) == [(0, 400)]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and "399 so far" in lines[1] and all(len(line) < 600 for line in lines)


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


@pytest.mark.parametrize("lost", [2, 5])
def test_lost_ends_that_nobody_would_send_again_are_seen_in_the_actor_s_state(
    client: Client, keys: Keys, lost: int
) -> None:
    """The actor has played as far as it may, and waits for weights that come after the round."""
    say(client, keys, 0, 1, Joined(0), Episode({}), *[BAD] * lost)
    save(client, keys, 0, 2 + lost, state(2))
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


@pytest.mark.parametrize("damaged", [b"", BAD, state("x"), state(None), state(-1), other_version(9)])
def test_a_run_that_cannot_know_its_round_ends_in_one_line(client: Client, keys: Keys, damaged: bytes) -> None:
    say(client, keys, 0, 1, Joined(0), BAD, BAD)
    save(client, keys, 0, 3, damaged)
    with open_inbox(client, keys) as inbox, pytest.raises(RunError, match=r"actor 0 .* round 0 .* lockstep") as caught:
        list(inbox.take_round(0))
    assert len(str(caught.value).splitlines()) == 1


class NoState(ExperienceReader):
    def _find_lost_end(self, actor: int, round_: int) -> None:
        pass


def test_without_a_look_at_the_state_the_learner_would_hang(client: Client, keys: Keys) -> None:
    """Or the tests above show nothing."""
    say(client, keys, 0, 1, Joined(0), BAD, BAD)
    save(client, keys, 0, 3, state(2))
    with stopped_after(1) as stop, open_inbox(client, keys, stop=stop, kind=NoState) as inbox, pytest.raises(Stopped):
        list(inbox.take_round(0))

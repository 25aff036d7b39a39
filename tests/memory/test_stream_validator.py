"""What can come next in an actor's stream, and what cannot."""

import numpy as np
import pytest

from rainbow_iqn_apex.memory.broker.stream_validator import UNBOUNDED, ProgressBound, StreamValidator
from rainbow_iqn_apex.memory.chunk import Chunk
from rainbow_iqn_apex.memory.messages import Episode, Joined, Message, RoundEnd
from rainbow_iqn_apex.memory.wire import WireError

FAR = ProgressBound(50, 10**9)


def episode(number: int, env: int = 0) -> Episode:
    return Episode({"actor": 3, "env": env, "episode": number})


def chunk(rows: int) -> Chunk:
    return Chunk(0, 0, {"step_type": np.zeros(rows, np.uint8)}, {}, np.zeros(1, np.float32))


class Teller:
    """Tells a story message by message, as the log reader does."""

    def __init__(self, bound: ProgressBound = FAR) -> None:
        self.bound = bound
        self.validator = StreamValidator()
        self.sequence = 0

    def says(self, *messages: Message) -> list[bool]:
        """Which of the messages are taken."""
        return [self._says(message) for message in messages]

    def _says(self, message: Message) -> bool:
        try:
            self._tell(message)
        except WireError:
            return False
        return True

    def refuses(self, message: Message, why: str) -> None:
        with pytest.raises(WireError, match=why):
            self._tell(message)

    def _tell(self, message: Message) -> None:
        self.sequence += 1
        self.validator.follow(3, b"%d-0" % self.sequence)
        try:
            self.validator.check(3, message, self.bound)
        except WireError:
            self.validator.leave_out()
            raise


def test_a_round_has_an_end() -> None:
    # Mutations: count what an actor has sent ever, or only its chunks; begin anew with each Joined.
    teller = Teller(ProgressBound(50, 10**9, rows=40))
    assert teller.says(*[chunk(13)] * 3, episode(0), chunk(1)) == [True] * 4 + [False]
    teller.refuses(episode(1), "more than 40 rows have come since a round ended")
    assert teller.says(RoundEnd(0), *[chunk(20)] * 3, RoundEnd(1), chunk(20)) == [True] * 3 + [False] + [True] * 2
    assert teller.says(Joined(1), chunk(19), Joined(1), chunk(1)) == [True, True, False, False]
    assert teller.says(Joined(3), chunk(39), chunk(1)) == [True] * 2 + [False]


# --- episodes ---


def test_episodes_follow_each_other_in_each_environment() -> None:
    assert all(Teller().says(Joined(0), episode(5), episode(9, env=1), episode(6), episode(7), episode(10, env=1)))


@pytest.mark.parametrize("forged", [20, 10**6, 2**62])
def test_a_jump_is_refused_and_silences_nobody(forged: int) -> None:
    teller = Teller(UNBOUNDED)
    assert all(teller.says(Joined(0), episode(4), episode(5)))
    teller.refuses(episode(forged), f"episode {forged} of environment 0 cannot come here: at most 6 can")
    assert teller.says(episode(forged)) == [False], "not by repeating it either"
    assert teller.says(episode(6), episode(7), episode(0, env=1)) == [True] * 3


def test_after_lost_messages_there_may_be_as_many_episodes_more() -> None:
    teller = Teller()
    assert all(teller.says(Joined(0), episode(0)))
    teller.sequence += 3  # Redis has lost them
    assert teller.says(episode(5), episode(4), episode(5)) == [False, True, True]


def test_old_episodes_may_come_again() -> None:
    assert all(Teller().says(episode(8), episode(7), episode(8), episode(9), episode(2), episode(10)))


def test_an_actor_that_begins_anew_numbers_from_the_steps_that_it_is_told() -> None:
    teller = Teller(ProgressBound(50, 70_000))
    assert all(teller.says(Joined(0), episode(0), episode(1), Joined(7), episode(70_000), episode(70_001)))
    teller.says(Joined(8), chunk(500))
    teller.refuses(episode(70_400), "at most 70000 can")
    teller.sequence += 400
    assert teller.says(episode(70_400)) == [True], "those before it may be lost"


def test_not_even_lost_messages_explain_more_episodes_than_steps() -> None:
    teller = Teller(ProgressBound(50, 70_000))
    assert all(teller.says(Joined(0), episode(0)))
    teller.sequence = 1_700_000_000_000  # somebody's XADD *
    teller.refuses(episode(10**9), "at most 71000 can")
    teller.refuses(episode(10**9 + 1), "at most 71000 can")
    assert teller.says(episode(1)) == [True]


def test_an_actor_whose_joining_is_lost_is_heard_again() -> None:
    teller = Teller()
    assert teller.says(episode(3), episode(900), episode(901), episode(902)) == [True, False, True, True]


def test_a_log_that_was_trimmed_begins_anywhere_within_reach() -> None:
    assert Teller().says(episode(123_456), episode(123_457)) == [True, True]
    teller = Teller(ProgressBound(50, 1000))
    teller.refuses(episode(2400), "at most 2000 can")
    assert teller.says(chunk(500), episode(2400)) == [True, True], "with the rows of its chunks"


# --- rounds ---


@pytest.mark.parametrize("message", [Joined(51), Joined(2**49), RoundEnd(51), RoundEnd(2**49)])
def test_no_round_begins_before_its_weights_are_published(message: Message) -> None:
    Teller().refuses(message, "its weights have not been published")
    teller = Teller(ProgressBound(52, 0))
    assert teller.says(Joined(51), RoundEnd(51), RoundEnd(52), RoundEnd(53)) == [True, True, True, False]
    teller.bound = ProgressBound(53, 0)
    assert teller.says(RoundEnd(53)) == [True]


def test_lost_messages_let_no_round_beyond_the_published_pass() -> None:
    teller = Teller()
    assert all(teller.says(Joined(0), RoundEnd(0)))
    teller.sequence = 1_700_000_000_000  # somebody's XADD *
    assert teller.says(RoundEnd(10**9), RoundEnd(50)) == [False, True]

"""Follows what one actor has written so far, and decides what can come next in its stream.

An actor of ours numbers messages, rounds and the episodes of each environment upwards by one. Only with Joined does an
actor begin anew: at the round of the newest weights version, or at the first round of a crew that the actor joins. That
round may be one after the newest version. From then on its episodes are numbered from the agent steps of the run before
that round, or without lockstep from those in the run's record at Joined.
"""

from dataclasses import dataclass
from typing import NamedTuple

from rainbow_iqn_apex.common.schema import MOST_COUNTED
from rainbow_iqn_apex.memory.broker.scripts import MAX_SEQUENCE
from rainbow_iqn_apex.memory.chunk import Chunk
from rainbow_iqn_apex.memory.messages import Episode, Joined, Message, RoundEnd
from rainbow_iqn_apex.memory.wire import WireError

_UNFINISHED = 1000  # agent steps that an environment has made since its last chunk, at most


class ProgressBound(NamedTuple):
    """How far actors can have come, by the weights that the learners of the run have published and by its record."""

    round: int  # newest weights version
    steps: int  # agent steps over all actors
    rows: int = MOST_COUNTED  # of one actor between the ends of two rounds; an episode counts as one


UNBOUNDED = ProgressBound(MOST_COUNTED, MOST_COUNTED)


@dataclass
class _Count:
    """Where the episodes of an environment stand."""

    newest: int
    missing: int  # messages of the actor that were missing when the newest episode came
    refused: int = -1  # number of an episode that has been refused since


class StreamValidator:
    """Checks the messages of an actor in their order."""

    def __init__(self) -> None:
        self._sequence: int | None = None  # of the last message
        self._round: int | None = None  # that ended last
        self._missing = 0  # messages that were lost or left out, ever
        self._missing_before = 0  # of these, those before the end of the last round
        self._rows = 0  # rows of all chunks
        self._rows_of_round = 0  # since a round ended, or was joined, that is later than all before
        self._latest = -1  # of these rounds
        self._episodes: dict[int, _Count] = {}  # by environment, since the actor joined
        self._missing_joined: int | None = None  # messages that were missing when the actor joined; None: it has not

    def follow(self, actor: int, entry_id: bytes) -> None:
        """Take the next message's sequence number; raises WireError if no actor of ours can have given it."""
        sequence, part = (int(number) for number in entry_id.split(b"-"))
        if self._sequence is not None:
            self._missing += max(0, sequence - self._sequence - 1)
        self._sequence = sequence
        if part or sequence > MAX_SEQUENCE:
            raise WireError(f"actor {actor} numbers no message so")

    def leave_out(self) -> None:
        """Count a message that was left out."""
        self._missing += 1

    def check(self, actor: int, message: Message, bound: ProgressBound) -> None:
        """Raise WireError for a message that cannot come now."""
        match message:
            case Chunk(rows={"step_type": step_type}):
                self._rows += len(step_type)
                self._count(len(step_type), bound)
            case Episode(record=record) if record.get("actor", actor) != actor:
                raise WireError("the episode is another actor's")
            case Episode(record={"env": int(env), "episode": int(number)}):
                self._count(1, bound)
                self._check_episode(env, number, bound)
            case RoundEnd(round=ended):
                self._check_round(ended, bound)
                self._end_round(ended)
            case Joined(round=first):
                _check_published(first, bound)
                self._end_round(first - 1)
                self._count(1, bound)
                self._episodes.clear()
                self._missing_joined = self._missing

    def _check_round(self, ended: int, bound: ProgressBound) -> None:
        _check_published(ended, bound)
        missing = self._missing - self._missing_before
        if self._round is not None and not 0 <= ended - self._round - 1 <= missing:
            raise WireError(f"the end of round {ended} does not follow that of round {self._round}")

    def _end_round(self, ended: int) -> None:
        self._round, self._missing_before = ended, self._missing
        if ended > self._latest:  # a Joined can be said again and again
            self._latest, self._rows_of_round = ended, 0

    def _count(self, rows: int, bound: ProgressBound) -> None:
        """Refuse what comes after all of a round: in lockstep the reader keeps a round's messages until it ends."""
        self._rows_of_round += rows
        if self._rows_of_round > bound.rows:
            raise WireError(f"more than {bound.rows} rows have come since a round ended")

    def _check_episode(self, env: int, number: int, bound: ProgressBound) -> None:
        """Refuse an episode that cannot have been played yet, or whose number does not follow the newest one.

        The training log ignores all numbers below the greatest: one wrong number would silence the environment. Older
        numbers pass, as messages can come again after a restart of Redis. A number that follows a refused one passes,
        too: the actor may have begun anew, and its Joined may be lost.
        """
        played = bound.steps + self._rows + _UNFINISHED  # an episode takes at least one step
        if (count := self._episodes.get(env)) is None:
            anew = self._missing_joined is not None
            most = bound.steps + self._missing - (self._missing_joined or 0) if anew else played
        else:
            most = max(count.newest + 1, min(played, count.newest + 1 + self._missing - count.missing))
            most = number if count.refused + 1 == number <= played else most
        if number > most:
            if count:
                count.refused = number
            raise WireError(f"episode {number} of environment {env} cannot come here: at most {most} can")
        if count is None or number >= count.newest:
            self._episodes[env] = _Count(number, self._missing)


def _check_published(round_: int, bound: ProgressBound) -> None:
    if round_ > bound.round:
        raise WireError(f"round {round_} cannot have begun: its weights have not been published")

"""Hands the actors' messages out in an order that the protocol fixes."""

import queue
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping

from rainbow_iqn_apex.common.errors import RunError, Stopped
from rainbow_iqn_apex.common.loop_clock import LoopClock
from rainbow_iqn_apex.common.waiting import FOR_ROUND, WaitReporter, no_hint
from rainbow_iqn_apex.memory.broker.actor_state import round_under_way
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys, every_actor
from rainbow_iqn_apex.memory.broker.record import registered_actors
from rainbow_iqn_apex.memory.broker.scripts import MAX_SEQUENCE, log_extent, sequence_of
from rainbow_iqn_apex.memory.broker.stream_reader import AT_ONCE, READ_AHEAD, Decoder, Entry, StreamReader
from rainbow_iqn_apex.memory.broker.stream_validator import UNBOUNDED, ProgressBound
from rainbow_iqn_apex.memory.broker.throttled_counter import ThrottledCounter
from rainbow_iqn_apex.memory.chunk import ChunkId
from rainbow_iqn_apex.memory.messages import Joined, RoundEnd

_IDLE_S = 1.0
_REST_S = 10.0  # for a message that is known to be in the log


class ExperienceReader:
    """Hands out the messages of all actors, each once, in each actor's own order.

    `read` holds, per actor, the sequence number of the last message handed out. `last` holds that of the last message
    in its log, trimmed or not, when this reader was made. What it yields is None about every second of a wait, so that
    the caller can do what must not wait so long. `absent` returns the end of each line about the wait. `bound` bounds
    what actors can have done. Actors 0 to `nb_actor` - 1
    play now. Logs of actors 0 to `known` - 1 are read, too: replay may still need messages of actors that have left.
    With `joining`, actors of any number are followed once they have a log. Of all these, only actors that this reader
    `owns` are read. At most `ahead` wait, and in lockstep a round. The part "wait" of `clock` is for the waits.
    """

    def __init__(
        self,
        client: Client,
        keys: Keys,
        nb_actor: int,
        decode: Decoder,
        stop: threading.Event,
        *,
        absent: Callable[[], str] = no_hint,
        bound: Callable[[], ProgressBound] = lambda: UNBOUNDED,
        known: int = 0,
        joining: bool = False,
        owns: Callable[[int], bool] = every_actor,
        ahead: int = READ_AHEAD,
        clock: LoopClock | None = None,
    ) -> None:
        joined = [registered_actors(client, shard) if joining else None for shard in keys.every_shard()]
        found = set(range(max(nb_actor, known))).union(*(there.actors for there in joined if there))
        actors = set(filter(owns, found))
        extents = {actor: log_extent(client, keys.log(actor)) for actor in sorted(actors)}
        # Messages of an emptied log were read by an earlier learner. An actor would wait for ever for them to be read.
        done = {actor: min(sequence_of(extent.start), MAX_SEQUENCE) for actor, extent in extents.items()}
        self.read: dict[int, int] = defaultdict(int, done)
        self.last = {actor: extent.last for actor, extent in extents.items()}
        self._client = client
        self._keys = keys
        self._nb_actor = nb_actor
        self._joining = joining
        self._owns = owns
        self._received: dict[int, int] = defaultdict(int, done)  # last message in pending, or handed out
        self._settled: dict[int, int] = {}  # last message that an earlier learner has counted
        self._gone = ThrottledCounter(self._tell_gone)
        self._newest_gone = ""
        self._left_out: dict[int, int] = defaultdict(int)  # messages lost or unreadable since the last end of a round
        self._pending: dict[int, deque[Entry]] = defaultdict(deque)
        self._waiting = 0  # entries in pending; counted, as a sum over many actors would take longer than a message
        self._ends: dict[int, deque[int]] = defaultdict(deque)  # rounds that end in pending
        self._played: dict[int, int] = defaultdict(lambda: -1, dict.fromkeys(self.read, -1))  # last round handed out
        self._backlog = {actor: extent.newest for actor, extent in extents.items()}
        self._stop = stop
        self._absent = absent
        self._clock = clock or LoopClock("wait")
        self._next_idle = time.monotonic() + _IDLE_S
        self._next_look = 0.0  # when to read an actor's state, if the end of its round may be lost
        self._bound = bound
        self._entries: queue.Queue[list[Entry]] = queue.Queue(max(1, ahead // AT_ONCE))
        self._arrived: deque[Entry] = deque()  # of these, what was taken together
        self._readers = []
        for shard, there in zip(keys.every_shard(), joined, strict=True):
            starts = {actor: extent.start for actor, extent in extents.items() if shard.holds(actor)}
            if starts or there:
                position = there.position if there else None
                self._readers.append(StreamReader(client, shard, starts, decode, bound, position, self._entries, owns))
        for reader in self._readers:
            reader.start()

    def close(self) -> None:
        """Stop reading."""
        for reader in self._readers:  # all at the same time: each may be in the middle of a read
            reader.leave()
        for reader in self._readers:
            reader.join()
        self._gone.report(now=True)

    def settle(self, counted: Mapping[int, int]) -> None:
        """Take the messages up to these of each actor for read by an earlier learner: they may be gone from Redis."""
        self._settled = dict(counted)
        for actor, last in counted.items():  # of an emptied log, whose actor goes on after all that was in it
            self._note_gone(actor, last + 1, self._received[actor])

    @property
    def received(self) -> dict[int, int]:
        """Per actor, the number of its last message that was read from Redis, handed out or not."""
        return {actor: last for reader in self._readers for actor, last in reader.received.items()}

    @property
    def quarantined(self) -> int:
        """Return how many messages could not be read."""
        return sum(reader.quarantined for reader in self._readers)

    def take_all(self, most: int = sys.maxsize) -> list[Entry]:
        """Return what has arrived, `most` messages at most, without waiting."""
        while self._waiting < most and self._receive(timeout=0):
            pass
        waiting = [actor for actor, pending in self._pending.items() for _ in pending]
        return [entry for actor in waiting[:most] for entry in self._pop(actor)]

    def take_backlog(self, most: Mapping[int, int] | None = None) -> Iterator[Entry | None]:
        """Yield all messages that were in the logs when this reader was made, of any actor as they arrive.

        With `most`, yield only those of the actors named there, up to the sequence number named.
        """
        waiting = WaitReporter("the experience stored in Redis")
        last = dict(self._backlog)
        if most is not None:
            last = {actor: min(most[actor], last[actor]) for actor in last.keys() & most.keys()}

        def wait(waited: float) -> bool:
            is_idle = self._wait(waiting)
            if waited > _REST_S:  # what Redis has lost meanwhile has been sent again by now, or will never be
                for actor in last:
                    last[actor] = min(last[actor], self._newest(actor))
            return is_idle

        return self._take_up_to(last, self._check_stop, wait)

    def take_rest(self) -> Iterator[Entry]:
        """Yield all messages that are in the logs now and were not handed out yet, even if this process shall stop."""
        shards = self._keys.every_shard() if self._joining else []
        joined = set[int]().union(*(registered_actors(self._client, shard).actors for shard in shards))
        actors = self.read.keys() | set(filter(self._owns, joined))
        last = {actor: self._newest(actor) for actor in sorted(actors)}
        return (entry for entry in self._take_up_to(last, lambda: None, self._wait_for_rest) if entry)

    def _take_up_to(
        self, last: dict[int, int], check: Callable[[], None], wait: Callable[[float], bool]
    ) -> Iterator[Entry | None]:
        """Yield messages up to the `last` of each actor; `wait` gets the seconds waited since a message came.

        It returns whether the caller shall get None.
        """
        came = time.monotonic()
        while behind := [actor for actor in last if self.read[actor] < last[actor] and not self._is_past(actor, last)]:
            check()
            ready = [actor for actor in behind if self._pending[actor]]
            for actor in ready:
                yield from self._pop(actor)
            if ready:
                came = time.monotonic()
            elif wait(time.monotonic() - came):
                yield None

    def _is_past(self, actor: int, last: dict[int, int]) -> bool:
        """Return whether the log holds none of an actor's next messages up to the last one: they were trimmed."""
        pending = self._pending[actor]
        return bool(pending) and pending[0].id.sequence > last[actor]

    def take_round(self, round_: int, nb_actor: int | None = None, stayed: int | None = None) -> Iterator[Entry | None]:
        """Yield all messages of a round that `nb_actor` actors played (None: those that play now), actor by actor.

        Waits until all these actors have played the round, except those that have left and write nothing any more.
        Actors from `stayed` on did not play the round before (None: all did). The messages of rounds that these actors
        began and did not finish are left out.
        Rounds must be taken one after the other. A trimmed log may hold less of an old round, or nothing.
        """
        for actor in filter(self._owns, range(nb_actor or self._nb_actor)):
            waiting = WaitReporter(f"actor {actor}{FOR_ROUND}{round_}", hint=self._absent)
            while self._played[actor] < round_:
                self._check_stop()
                if not self._ends[actor]:
                    if actor >= self._nb_actor and self._received[actor] >= self._backlog[actor]:
                        break
                    self._find_lost_end(actor, round_)
                    if self._wait(waiting):
                        yield None
                elif stayed is not None and actor >= stayed and self._ends[actor][0] < round_:
                    self._pop(actor)
                elif self._ends[actor][0] <= round_:
                    yield from self._pop(actor)
                else:
                    break

    def _find_lost_end(self, actor: int, round_: int) -> None:
        """If the end of this round may have been left out, read in the actor's state whether the actor has ended it.

        Without this, the run would stand still: the actor waits for weights that are published only after this round.
        """
        if not self._left_out[actor] or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _IDLE_S
        if self._is_behind(actor):
            return
        try:
            playing = round_under_way(self._client, self._keys, actor, self._bound().round + 1)
        except ValueError as error:
            raise RunError(
                f"{self._left_out[actor]} messages of actor {actor} are lost, perhaps the end of round {round_} among "
                f"them, and its saved state does not show it ({error}): the run cannot go on in lockstep; start it "
                "afresh, with the same release of this program everywhere"
            ) from error
        if playing and playing.number > round_ and not self._is_behind(actor):  # again, now that the state was read
            self._append(Entry(ChunkId(actor, self._received[actor]), RoundEnd(playing.number - 1)))

    def _is_behind(self, actor: int) -> bool:
        return self._newest(actor) > self._received[actor]

    def _newest(self, actor: int) -> int:
        return log_extent(self._client, self._keys.log(actor)).newest

    def wait(self, waiting: WaitReporter) -> bool:
        """Wait a moment for a message; returns whether a second of waiting has passed since this was last so.

        Raises Stopped when the process shall stop, RunError when reading failed.
        """
        return not self._waiting and self._wait(waiting)

    def _pop(self, actor: int) -> list[Entry]:
        entry = self._pending[actor].popleft()
        self._waiting -= 1
        self.read[actor] = entry.id.sequence
        if isinstance(entry.message, RoundEnd | Joined):
            self._played[actor] = self._ends[actor].popleft()
        return [] if entry.message is None else [entry]

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise Stopped

    def _wait_for_rest(self, _: float) -> bool:
        if not self._receive(timeout=_REST_S) and not self._receive(timeout=0):
            raise RunError("the newest messages of the actors have gone from Redis")
        return False

    def _wait(self, waiting: WaitReporter) -> bool:
        self._check_stop()
        with self._clock.part("wait"):
            self._receive(timeout=0.2)
        waiting.check()
        is_idle = time.monotonic() >= self._next_idle
        if is_idle:
            self._next_idle = time.monotonic() + _IDLE_S
        return is_idle

    def _receive(self, timeout: float) -> bool:
        if error := next((reader.error for reader in self._readers if reader.error), None):
            what = str(error) if isinstance(error, RunError) else f"{type(error).__name__}: {error}"
            raise RunError(f"reading the experience failed: {what}") from error
        try:
            if not self._arrived:
                self._arrived.extend(self._entries.get(block=timeout > 0, timeout=timeout or None))
        except queue.Empty:
            return False
        entry = self._arrived.popleft()
        actor, sequence = entry.id
        if before := self._received[actor]:  # a broker that was restarted may have lost messages in between
            self._left_out[actor] += max(0, sequence - before - 1)
        if before := max(before, self._settled.get(actor, 0)):
            self._note_gone(actor, before + 1, sequence if entry.is_gone else sequence - 1)
        self._received[actor] = sequence
        self._append(entry)
        return True

    def _note_gone(self, actor: int, first: int, last: int) -> None:
        """Count and report these messages, if there are any."""
        if first <= last:
            self._newest_gone = f"{first} to {last} of {self._keys.title(actor)}"
            self._gone.more(last - first + 1)

    def _tell_gone(self, new: int, count: int) -> str:
        return (
            f"{new} messages have gone from Redis before they were read, {count} so far; the newest are "
            f"{self._newest_gone}"
        )

    def _append(self, entry: Entry) -> None:
        actor = entry.id.actor
        self._pending[actor].append(entry)
        self._waiting += 1
        match entry.message:
            case None:
                self._left_out[actor] += 1
            case RoundEnd(round=played):
                self._ends[actor].append(played)
                self._left_out[actor] = 0
            case Joined(round=first):
                self._ends[actor].append(first - 1)
                self._left_out[actor] = 0

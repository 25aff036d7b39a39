"""Reader of the actors' logs: messages are decoded ahead in threads, and handed out in the protocol's order."""

import queue
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, cast

from rainbow_iqn_apex.common.errors import RunError, Stopped
from rainbow_iqn_apex.common.loop_clock import LoopClock
from rainbow_iqn_apex.common.waiting import FOR_ROUND, WaitReporter
from rainbow_iqn_apex.memory.broker.connection import BLOCK_MS, Client, ReplyTooLargeError
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.record import actor_number, registered_actors
from rainbow_iqn_apex.memory.broker.reports import MissingProcesses
from rainbow_iqn_apex.memory.broker.scripts import READ_BYTES, RawMessage, Scripts, log_extent, raw_message, sequence_of
from rainbow_iqn_apex.memory.chunk import ChunkId
from rainbow_iqn_apex.memory.messages import Joined, Message, MessageSchema, RoundEnd
from rainbow_iqn_apex.memory.wire import WireError, decode_meta

READ_AHEAD = 256  # decoded messages, about 130 MB of chunks, at which a reader waits; in lockstep a round may be longer
AT_ONCE = 8  # messages that are handed over together: waking the learner for each costs a tenth of decoding it
_READ_COUNT = 128  # messages in one read, at least one of each stream: the server makes up the whole reply at once
_IDLE_S = 1.0
_REST_S = 10.0  # for a message that is known to be in the log
_REPORTED_S = 10.0  # between two lines about messages that are left out
_REASON_LENGTH = 300


class Entry(NamedTuple):
    """A message and its place in the log."""

    id: ChunkId
    message: Message | None  # None within this module only: an unreadable message is left out, but counts as read


class RoundUnderWay(NamedTuple):
    """The round that an actor plays."""

    number: int  # it has played all rounds before this one to their end
    begun: bool


def round_in(state: bytes) -> RoundUnderWay:
    """Return the round in an actor's state; raises WireError for a state that names none."""
    meta = decode_meta(state)
    number = meta.get("round")
    if type(number) is not int or number < 0:
        raise WireError("it names no round that can have begun")
    return RoundUnderWay(number, begun=meta.get("round_step") != 0)


def round_under_way(client: Client, keys: Keys, actor: int) -> RoundUnderWay | None:
    """Return the round that an actor plays, None if it has no state; raises WireError as `round_in`.

    The state is stored in one step with the actor's messages, so it is right once all messages before it are read.
    """
    state = cast(bytes | None, client.hget(keys.state(actor), "state"))
    return None if state is None else round_in(state)


class ThrottledCounter:
    """Counts what is left out. It prints a line at once for the first, then at most one line every ten seconds.

    `line` makes the text from the number of new ones and the number of all.
    """

    def __init__(self, line: Callable[[int, int], str]) -> None:
        self.count = 0
        self._line = line
        self._printed = 0
        self._next = 0.0

    def more(self, number: int = 1) -> None:
        """Count some more."""
        self.count += number
        self.report()

    def report(self, *, now: bool = False) -> None:
        """Print what is new, but not too often unless `now`."""
        new = self.count - self._printed
        if new and (now or time.monotonic() >= self._next):
            print(self._line(new, self.count), flush=True)
            self._printed = self.count
            self._next = time.monotonic() + _REPORTED_S


class _ShardReader(threading.Thread):
    """Reads and decodes the streams of the actors of a shard into `entries`; `ExperienceReader` raises its errors.

    `starts` holds, by actor, the position after which to read its stream; messages before it count as received.
    `joins` is the last position read in the stream of actors: the thread continues there, and follows new actors whose
    number modulo `ranks` is `rank`.
    """

    def __init__(
        self,
        client: Client,
        keys: Keys,
        schema: MessageSchema,
        entries: queue.Queue[list[Entry]],
        starts: Mapping[int, bytes],
        joins: bytes | None,
        *,
        rank: int,
        ranks: int,
    ) -> None:
        super().__init__(name="log reader", daemon=True)
        self.error: BaseException | None = None
        self.unreadable = ThrottledCounter(
            lambda new, count: f"Left out {new} unreadable, {count} so far; the newest is {self._newest_unreadable}"
        )
        self._newest_unreadable = ""
        self._entries = entries
        self._decoded: list[Entry] = []  # not handed over yet
        self._client = client.of(keys.actors)
        self._scripts = Scripts(client)
        self._schema = schema
        self._keys = keys
        self._actors: dict[bytes, int] = {}  # by the key of the log
        self._positions: dict[bytes, bytes] = {}
        self._joins = keys.actors.encode()
        for actor, start in starts.items():
            self._follow(actor, start)
        if joins is not None:
            self._positions[self._joins] = joins
        self._rank = rank
        self._ranks = ranks
        self._careful = False  # whether a script fetches the messages, as one read would have too many bytes
        self._turn = 0
        self._left = threading.Event()

    def leave(self) -> None:
        """Stop reading after the read under way, without waiting for that; `join` does."""
        self._left.set()

    def run(self) -> None:
        """Read until told to leave."""
        try:
            while not self._left.is_set():
                for stream, messages in self._read():
                    self._positions[stream] = messages[-1][0]
                    if stream == self._joins:
                        self._follow_new(messages)
                    else:
                        self._decode(self._actors[stream], messages)
                self._hand_over()
                self.unreadable.report()
            self.unreadable.report(now=True)
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self.error = error

    def _read(self) -> list[tuple[bytes, list[RawMessage]]]:
        """Wait a moment for messages, and return them by stream, no more than READ_BYTES of them."""
        if not self._careful:
            try:
                with self._client.replies_up_to(READ_BYTES):
                    positions: Any = self._positions  # redis-py declares dictionaries of its own types only
                    count = max(1, _READ_COUNT // len(positions))
                    reply: Any = self._client.xread(positions, count=count, block=BLOCK_MS)
                return [(stream, [raw_message(*item) for item in items]) for stream, items in reply]
            except ReplyTooLargeError:
                self._careful = True
        streams = deque(self._positions)
        streams.rotate(self._turn)  # or a flooded first stream would keep all others waiting
        self._turn += 1
        found = self._scripts.read({stream: self._positions[stream] for stream in streams}, READ_BYTES)
        self._careful = bool(found)
        return found

    @property
    def received(self) -> dict[int, int]:
        """Per actor, the number of its last message read, or trimmed before; new ones may have greater numbers only."""
        positions = list(self._positions.items())
        return {self._actors[stream]: sequence_of(at) for stream, at in positions if stream != self._joins}

    def _follow(self, actor: int, start: bytes) -> None:
        key = self._keys.log(actor).encode()
        self._actors[key] = actor
        self._positions[key] = start

    def _follow_new(self, entries: Iterable[RawMessage]) -> None:
        """Follow actors that are new; ignore an entry that names no actor."""
        for entry in entries:
            actor = actor_number(entry.data)
            if actor is not None and actor % self._ranks == self._rank and actor not in self._actors.values():
                print(f"{self._keys.title(actor).capitalize()} joins", flush=True)
                self._follow(actor, b"0-0")

    def _decode(self, actor: int, messages: Iterable[RawMessage]) -> None:
        for entry_id, size, data in messages:
            sequence = sequence_of(entry_id)
            message = None
            try:
                if size > len(data):
                    raise WireError(f"message of {size} bytes, {READ_BYTES} are allowed")
                message = self._schema.decode(data)
            except ValueError as error:  # WireError among them
                reason = ascii(str(error))[1:-1][:_REASON_LENGTH]  # it may quote the message, which may hold anything
                self._newest_unreadable = f"message {sequence} of {self._keys.title(actor)}: {reason}"
                self.unreadable.more()
            self._decoded.append(Entry(ChunkId(actor, sequence), message))
            if len(self._decoded) == AT_ONCE:
                self._hand_over()

    def _hand_over(self) -> None:
        while self._decoded and not self._left.is_set():
            with suppress(queue.Full):  # the learner is busy: the reader waits for it
                self._entries.put(self._decoded, timeout=BLOCK_MS / 1000)
                self._decoded = []


class ExperienceReader:
    """Hands out the messages of all actors that `schema` allows, each once, in each actor's own order.

    `read` holds, per actor, the sequence number of the last message handed out. `last` holds that of the last message
    in its log, trimmed or not, when this reader was made. What it yields is None about every second of a wait, so that
    the caller can do what must not wait so long; lines about the wait name the `missing` processes. Actors 0 to
    `nb_actor` - 1 play now. Logs of actors 0 to `known` - 1 are read, too: replay may still need messages of actors
    that have left. With `joining`, actors of any number are followed once they have a log. Of all these, only actors
    whose number modulo `ranks` is `rank` are read. At most `ahead` wait, and in lockstep a round. The part "wait" of
    `clock` is for the waits.
    """

    def __init__(
        self,
        client: Client,
        keys: Keys,
        nb_actor: int,
        schema: MessageSchema,
        stop: threading.Event,
        *,
        missing: MissingProcesses | None = None,
        known: int = 0,
        joining: bool = False,
        rank: int = 0,
        ranks: int = 1,
        ahead: int = READ_AHEAD,
        clock: LoopClock | None = None,
    ) -> None:
        self._client = client
        self._keys = keys
        self._nb_actor = nb_actor
        self._joining = joining
        self._rank = rank
        self._ranks = ranks
        joined = [registered_actors(client, shard) if joining else None for shard in keys.every_shard()]
        found = set(range(max(nb_actor, known))).union(*(there.actors for there in joined if there))
        extents = {actor: log_extent(client, keys.log(actor)) for actor in self._own(found)}
        # Messages of an emptied log were read by an earlier learner. An actor would wait for ever for them to be read.
        done = {actor: sequence_of(extent.start) for actor, extent in extents.items()}
        self.read: dict[int, int] = defaultdict(int, done)
        self.last = {actor: extent.last for actor, extent in extents.items()}
        self._received: dict[int, int] = defaultdict(int, done)  # last message in pending, or handed out
        self._settled: dict[int, int] = {}  # last message that an earlier learner has counted
        self._gone = ThrottledCounter(
            lambda new, count: (
                f"{new} messages have gone from Redis before they were read, {count} so far; the newest are "
                f"{self._newest_gone}"
            )
        )
        self._newest_gone = ""
        self._left_out: dict[int, int] = defaultdict(int)  # messages lost or unreadable since the last end of a round
        self._pending: dict[int, deque[Entry]] = defaultdict(deque)
        self._waiting = 0  # entries in pending; counted, as a sum over many actors would take longer than a message
        self._ends: dict[int, deque[int]] = defaultdict(deque)  # rounds that end in pending
        self._played: dict[int, int] = defaultdict(lambda: -1, dict.fromkeys(self.read, -1))  # last round handed out
        self._backlog = {actor: extent.newest for actor, extent in extents.items()}
        self._stop = stop
        self._missing = missing or MissingProcesses(client, keys, ())
        self._clock = clock or LoopClock("wait")
        self._next_idle = time.monotonic() + _IDLE_S
        self._next_look = 0.0  # when to read an actor's state, if the end of its round may be lost
        self._entries: queue.Queue[list[Entry]] = queue.Queue(max(1, ahead // AT_ONCE))
        self._arrived: deque[Entry] = deque()  # of these, what was taken together
        self._readers = []
        for shard, there in zip(keys.every_shard(), joined, strict=True):
            starts = {actor: extent.start for actor, extent in extents.items() if shard.holds(actor)}
            if starts or there:
                joins = there.position if there else None
                own = _ShardReader(client, shard, schema, self._entries, starts, joins, rank=rank, ranks=ranks)
                self._readers.append(own)
        for reader in self._readers:
            reader.start()

    def _own(self, actors: Iterable[int]) -> list[int]:
        return sorted(actor for actor in actors if actor % self._ranks == self._rank)

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
    def unreadable(self) -> int:
        """Return how many messages could not be read."""
        return sum(reader.unreadable.count for reader in self._readers)

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
        came = time.monotonic()
        while behind := self._behind(last):
            self._check_stop()
            if ready := [actor for actor in behind if self._pending[actor]]:
                for actor in ready:
                    yield from self._pop(actor)
                came = time.monotonic()
                continue
            if time.monotonic() - came > _REST_S:  # what Redis has lost has been sent again by now, or will never be
                last = {actor: min(number, self._newest(actor)) for actor, number in last.items()}
            if self._wait(waiting):
                yield None

    def take_rest(self) -> Iterator[Entry]:
        """Yield all messages that are in the logs now and were not handed out yet, even if this process shall stop."""
        shards = self._keys.every_shard() if self._joining else []
        joined = set[int]().union(*(registered_actors(self._client, shard).actors for shard in shards))
        last = {actor: self._newest(actor) for actor in sorted(self.read.keys() | {*self._own(joined)})}
        return self._take_rest(last)

    def _take_rest(self, last: dict[int, int]) -> Iterator[Entry]:
        while behind := self._behind(last):
            ready = [actor for actor in behind if self._pending[actor]]
            for actor in ready:
                yield from self._pop(actor)
            if not ready and not self._receive(timeout=_REST_S) and not self._receive(timeout=0):
                raise RunError("the newest messages of the actors have gone from Redis")

    def _behind(self, last: dict[int, int]) -> list[int]:
        """Return the actors of which messages up to the `last` are still to come: trimmed ones are not."""
        return [
            actor
            for actor, number in last.items()
            if self.read[actor] < number and not ((pending := self._pending[actor]) and pending[0].id.sequence > number)
        ]

    def take_round(self, round_: int, nb_actor: int | None = None, stayed: int | None = None) -> Iterator[Entry | None]:
        """Yield all messages of a round that `nb_actor` actors played (None: those that play now), actor by actor.

        Waits until all these actors have played the round, except those that have left and write nothing any more.
        Actors from `stayed` on did not play the round before (None: all did). The messages of rounds that these actors
        began and did not finish are left out.
        Rounds must be taken one after the other. A trimmed log may hold less of an old round, or nothing.
        """
        for actor in self._own(range(nb_actor or self._nb_actor)):
            waiting = WaitReporter(f"actor {actor}{FOR_ROUND}{round_}", hint=self._missing.actors)
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
            playing = round_under_way(self._client, self._keys, actor)
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
            self._note_gone(actor, before + 1, sequence - 1)
        self._received[actor] = sequence
        self._append(entry)
        return True

    def _note_gone(self, actor: int, first: int, last: int) -> None:
        """Count and report these messages, if there are any."""
        if first <= last:
            self._newest_gone = f"{first} to {last} of {self._keys.title(actor)}"
            self._gone.more(last - first + 1)

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

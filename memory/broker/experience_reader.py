"""Read the actors' streams in a thread, and hand their messages out in an order that the protocol fixes."""

import queue
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from memory.broker.actor_state import round_under_way
from memory.broker.connection import BLOCK_MS, Client, ReplyTooLargeError
from memory.broker.quarantine import Quarantine
from memory.broker.story import ANYWHERE, Reach, Story
from memory.broker.transport import (
    MAX_SEQUENCE,
    READ_BYTES,
    Keys,
    RawMessage,
    Registered,
    Scripts,
    actor_number,
    newest_sequence,
    raw_message,
    registered_actors,
    sequence_of,
)
from memory.chunk import ChunkId
from memory.errors import RunError, Stopped
from memory.messages import Joined, Message, RoundEnd
from memory.waiting import WaitReporter, no_hint
from memory.wire import WireError

_READ_COUNT = 32  # messages of a stream in one read
READ_AHEAD = 256  # decoded messages waiting for the learner: back-pressure on the reader, about 130 MB of chunks
_IDLE_S = 1.0
_REST_S = 10.0  # for a message that is known to be in the log

Decoder = Callable[[bytes], Message]  # raises ValueError for what replay could not hold


class Entry(NamedTuple):
    """A message and its place in the log."""

    id: ChunkId
    message: Message | None  # None inside this file only: an unreadable message is left out, but counts as read


class StreamReader(threading.Thread):
    """Reads and decodes the streams of all actors from their beginning on; `ExperienceReader` raises its errors.

    `joins` is the last position read in the stream of actors: the thread reads on there, and follows new actors.
    """

    def __init__(
        self, client: Client, keys: Keys, actors: Iterable[int], decode: Decoder, reach: Callable[[], Reach],
        joins: bytes | None, ahead: int,
    ) -> None:  # fmt: skip
        super().__init__(name="log reader", daemon=True)
        self.entries: queue.Queue[Entry] = queue.Queue(ahead)
        self.error: BaseException | None = None
        self._client = client
        self._scripts = Scripts(client)
        self._quarantine = Quarantine(client, keys)
        self._keys = keys
        self._actors: dict[bytes, int] = {}  # by the key of the log
        self._positions: dict[Any, Any] = {}
        self._stories: dict[int, Story] = defaultdict(Story)
        self._joins = keys.actors.encode()
        for actor in actors:
            self._follow(actor)
        if joins is not None:
            self._positions[self._joins] = joins
        self._decode = decode
        self._reach = reach
        self._careful = False  # whether a script fetches the messages, as one read would have too many bytes
        self._turn = 0
        self._left = threading.Event()

    def close(self) -> None:
        """Stop reading."""
        self._left.set()
        self.join()

    def run(self) -> None:
        """Read until closed."""
        try:
            while not self._left.is_set():
                for stream, messages in self._read():
                    self._positions[stream] = messages[-1].id
                    if stream == self._joins:
                        self._take_in(messages)
                    else:
                        self._take(self._actors[stream], messages)
                self._quarantine.report()
            self._quarantine.report(now=True)
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self.error = error

    def _read(self) -> list[tuple[bytes, list[RawMessage]]]:
        """Wait a moment for messages, and return them by stream, no more than READ_BYTES of them."""
        if not self._careful:
            try:
                with self._client.replies_up_to(READ_BYTES):
                    reply: Any = self._client.xread(self._positions, count=_READ_COUNT, block=BLOCK_MS)
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
        """Per actor, the number of its last message read; an actor may number new messages only above this one."""
        return {
            self._actors[stream]: min(sequence_of(position), MAX_SEQUENCE)
            for stream, position in list(self._positions.items())
            if stream != self._joins
        }

    def _follow(self, actor: int) -> None:
        key = self._keys.log(actor).encode()
        self._actors[key] = actor
        self._positions[key] = b"0-0"

    def _take_in(self, entries: Iterable[RawMessage]) -> None:
        """Follow actors that are new; ignore an entry that names no actor."""
        for entry in entries:
            actor = actor_number(entry.data)
            if actor is not None and actor not in self._actors.values():
                print(f"{self._keys.title(actor).capitalize()} joins", flush=True)
                self._follow(actor)

    def _take(self, actor: int, messages: Iterable[RawMessage]) -> None:
        story = self._stories[actor]
        for raw in messages:
            message = None
            try:
                story.follow(actor, raw.id)
                if raw.size > len(raw.data):
                    raise WireError(f"message of {raw.size} bytes, {READ_BYTES} are allowed")
                decoded = self._decode(raw.data)
                story.check(actor, decoded, self._reach())
                message = decoded
            except ValueError as error:  # WireError among them
                story.leave_out()
                self._quarantine.add(actor, raw.id, raw.data, str(error), raw.size)
            if sequence_of(raw.id) <= MAX_SEQUENCE:  # a greater one, if counted, would leave the actor no number
                self._put(Entry(ChunkId(actor, sequence_of(raw.id)), message))

    def _put(self, entry: Entry) -> None:
        while not self._left.is_set():
            with suppress(queue.Full):  # the learner is busy: the reader waits for it
                self.entries.put(entry, timeout=BLOCK_MS / 1000)
                return


class ExperienceReader:
    """Hands out the messages of all actors, each once, in each actor's own order.

    `read` holds, per actor, the sequence number of the last message handed out. `idle` is called about every second of
    a wait; `absent` returns the end of each line about the wait. `reach` bounds what actors can have done. Actors 0 to
    `nb_actor` - 1 play now. Logs of actors 0 to `known` - 1 are read, too: replay may still need messages of actors
    that have left. With `joining`, actors of any number are followed once they have a log. At most `ahead` wait.
    """

    def __init__(
        self,
        client: Client,
        keys: Keys,
        nb_actor: int,
        decode: Decoder,
        stop: threading.Event,
        idle: Callable[[], None] = lambda: None,
        *,
        absent: Callable[[], str] = no_hint,
        reach: Callable[[], Reach] = lambda: ANYWHERE,
        known: int = 0,
        joining: bool = False,
        ahead: int = READ_AHEAD,
    ) -> None:
        joined = registered_actors(client, keys) if joining else None
        actors = set(range(max(nb_actor, known))) | (joined.actors if joined else set())
        self.read: dict[int, int] = defaultdict(int, dict.fromkeys(sorted(actors), 0))
        self._client = client
        self._keys = keys
        self._nb_actor = nb_actor
        self._joining = joining
        self._received: dict[int, int] = defaultdict(int)  # last message in pending, or handed out
        self._left_out: dict[int, int] = defaultdict(int)  # messages lost or unreadable since the last end of a round
        self._pending: dict[int, deque[Entry]] = defaultdict(deque)
        self._ends: dict[int, deque[int]] = defaultdict(deque)  # rounds that end in pending
        self._played: dict[int, int] = defaultdict(lambda: -1, dict.fromkeys(self.read, -1))  # last round handed out
        self._backlog = {actor: newest_sequence(client, keys.log(actor)) for actor in self.read}
        self._stop = stop
        self._idle = idle
        self._absent = absent
        self._next_idle = time.monotonic() + _IDLE_S
        self._next_look = 0.0  # when to read an actor's state, if the end of its round may be lost
        self._reach = reach
        position = joined.position if joined else None
        self._reader = StreamReader(client, keys, self.read, decode, reach, position, ahead)
        self._reader.start()

    def close(self) -> None:
        """Stop the reader."""
        self._reader.close()

    @property
    def received(self) -> dict[int, int]:
        """Per actor, the number of its last message that was read from Redis, handed out or not."""
        return self._reader.received

    def take_all(self, most: int = sys.maxsize) -> list[Entry]:
        """Return what has arrived, `most` messages at most, without waiting."""
        while sum(map(len, self._pending.values())) < most and self._receive(timeout=0):
            pass
        waiting = [actor for actor, pending in self._pending.items() for _ in pending]
        return [entry for actor in waiting[:most] for entry in self._pop(actor)]

    def take_backlog(self) -> Iterable[Entry]:
        """Yield all messages that were in the logs when this reader was made, of any actor as they arrive."""
        patience = WaitReporter("the experience stored in Redis")
        return self._take_up_to(self._backlog, self._check_stop, lambda: self._wait(patience))

    def take_rest(self) -> Iterable[Entry]:
        """Yield all messages that are in the logs now and were not handed out yet, even if this process shall stop."""
        joined = registered_actors(self._client, self._keys) if self._joining else Registered(set(), b"")
        actors = self.read.keys() | joined.actors
        last = {actor: newest_sequence(self._client, self._keys.log(actor)) for actor in sorted(actors)}
        return self._take_up_to(last, lambda: None, self._wait_for_rest)

    def _take_up_to(self, last: dict[int, int], check: Callable[[], None], wait: Callable[[], None]) -> Iterable[Entry]:
        while behind := [actor for actor in last if self.read[actor] < last[actor]]:
            check()
            ready = [actor for actor in behind if self._pending[actor]]
            for actor in ready:
                yield from self._pop(actor)
            if not ready:
                wait()

    def take_round(self, round_: int, nb_actor: int | None = None, stayed: int | None = None) -> Iterable[Entry]:
        """Yield all messages of a round that `nb_actor` actors played (None: those that play now), actor by actor.

        Waits until all these actors have played the round, except those that have left and write nothing any more.
        Actors from `stayed` on did not play the round before (None: all did). The messages of rounds that these actors
        began and did not finish are left out.
        Rounds must be taken one after the other. A trimmed log may hold less of an old round, or nothing.
        """
        for actor in range(nb_actor or self._nb_actor):
            patience = WaitReporter(f"actor {actor} to play round {round_}", hint=self._absent)
            while self._played[actor] < round_:
                self._check_stop()
                if not self._ends[actor]:
                    if actor >= self._nb_actor and self._received[actor] >= self._backlog[actor]:
                        break
                    self._find_lost_end(actor, round_)
                    self._wait(patience)
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
            playing = round_under_way(self._client, self._keys, actor, self._reach().round + 1)
        except ValueError as error:
            raise RunError(
                f"{self._left_out[actor]} messages of actor {actor} are lost, perhaps the end of round {round_} among "
                f"them, and its saved state does not show it ({error}): the run cannot go on in lockstep; start it "
                "afresh, with the same release of this program everywhere"
            ) from error
        if playing and playing.number > round_ and not self._is_behind(actor):  # again, now that the state was read
            self._append(Entry(ChunkId(actor, self._received[actor]), RoundEnd(playing.number - 1)))

    def _is_behind(self, actor: int) -> bool:
        return newest_sequence(self._client, self._keys.log(actor)) > self._received[actor]

    def wait(self, patience: WaitReporter) -> None:
        """Wait a moment for a message; raises Stopped when the process shall stop, RunError when reading failed."""
        if not any(self._pending.values()):
            self._wait(patience)

    def _pop(self, actor: int) -> list[Entry]:
        entry = self._pending[actor].popleft()
        self.read[actor] = entry.id.sequence
        if isinstance(entry.message, RoundEnd | Joined):
            self._played[actor] = self._ends[actor].popleft()
        return [] if entry.message is None else [entry]

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise Stopped

    def _wait_for_rest(self) -> None:
        if not self._receive(timeout=_REST_S) and not self._receive(timeout=0):
            raise RunError("the newest messages of the actors have gone from Redis")

    def _wait(self, patience: WaitReporter) -> None:
        self._check_stop()
        self._receive(timeout=0.2)
        patience.check()
        if time.monotonic() >= self._next_idle:
            self._idle()
            self._next_idle = time.monotonic() + _IDLE_S

    def _receive(self, timeout: float) -> bool:
        if self._reader.error:
            error = self._reader.error
            what = str(error) if isinstance(error, RunError) else f"{type(error).__name__}: {error}"
            raise RunError(f"reading the experience failed: {what}") from error
        try:
            entry = self._reader.entries.get(block=timeout > 0, timeout=timeout or None)
        except queue.Empty:
            return False
        actor, sequence = entry.id
        if self._received[actor]:  # a broker that was restarted may have lost messages in between
            self._left_out[actor] += max(0, sequence - self._received[actor] - 1)
        self._received[actor] = sequence
        self._append(entry)
        return True

    def _append(self, entry: Entry) -> None:
        actor = entry.id.actor
        self._pending[actor].append(entry)
        match entry.message:
            case None:
                self._left_out[actor] += 1
            case RoundEnd(round=played):
                self._ends[actor].append(played)
                self._left_out[actor] = 0
            case Joined(round=first):
                self._ends[actor].append(first - 1)
                self._left_out[actor] = 0

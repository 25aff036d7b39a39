"""The learner's view of the actors' streams: read in a thread, handed out in an order that the protocol fixes."""

import queue
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, cast

from memory.chunk import ChunkId
from memory.connection import BLOCK_MS, Client
from memory.errors import RunError, Stopped
from memory.messages import Episode, Joined, Message, RoundEnd
from memory.quarantine import Quarantine
from memory.run_record import whole_number
from memory.transport import MAX_SEQUENCE, Keys, registered, registered_actors
from memory.waiting import Patience, no_hint
from memory.wire import WireError, decode_meta

_READ_COUNT = 32  # messages of a stream in one read
_QUEUE_SIZE = 256  # decoded messages waiting for the learner: back-pressure on the reader, about 130 MB of chunks
_IDLE_S = 1.0
_REST_S = 10.0  # for a message that is known to be in the log

Decoder = Callable[[bytes], Message]  # raises ValueError for what replay could not hold


class Entry(NamedTuple):
    """A message and its place in the log."""

    id: ChunkId
    message: Message | None  # None inside this file only: it could not be read, is left out, but counts as read


class _Story:
    """What an actor has said so far, as far as it decides what may come next."""

    def __init__(self) -> None:
        self.sequence: int | None = None  # of the last message
        self.round: int | None = None  # that ended last
        self.lost = 0  # messages that were lost or left out since

    def follow(self, actor: int, entry_id: bytes) -> int:
        """Take the next message's sequence number; raises WireError if no actor of ours can have given it."""
        sequence, part = (int(number) for number in entry_id.split(b"-"))
        if self.sequence is not None:
            self.lost += max(0, sequence - self.sequence - 1)
        self.sequence = sequence
        if part or sequence > MAX_SEQUENCE:
            raise WireError(f"actor {actor} numbers no message so")
        return sequence

    def check(self, actor: int, message: Message) -> None:
        """Raise WireError for a message that cannot come now."""
        match message:
            case Episode(record=record) if record.get("actor", actor) != actor:
                raise WireError("the episode is another actor's")
            case RoundEnd(round=ended):
                if self.round is not None and not 0 <= ended - self.round - 1 <= self.lost:
                    raise WireError(f"the end of round {ended} does not follow that of round {self.round}")
                self.round, self.lost = ended, 0
            case Joined(round=first):
                self.round, self.lost = first - 1, 0


class LogReader(threading.Thread):
    """Reads and decodes the streams of all actors from their beginning on; an error in it reaches `Inbox`.

    With `joins`, the last position read in the stream of actors, it reads on there and takes in whoever joins.
    """

    def __init__(self, client: Client, keys: Keys, actors: Iterable[int], decode: Decoder, joins: bytes | None) -> None:
        super().__init__(name="log reader", daemon=True)
        self.entries: queue.Queue[Entry] = queue.Queue(_QUEUE_SIZE)
        self.error: BaseException | None = None
        self._client = client
        self._quarantine = Quarantine(client, keys)
        self._keys = keys
        self._actors: dict[bytes, int] = {}  # by the key of the log
        self._positions: dict[Any, Any] = {}
        self._stories: dict[int, _Story] = defaultdict(_Story)
        self._joins = keys.actors.encode()
        for actor in actors:
            self._follow(actor)
        if joins is not None:
            self._positions[self._joins] = joins
        self._decode = decode
        self._left = threading.Event()

    def close(self) -> None:
        """Stop reading."""
        self._left.set()
        self.join()

    def run(self) -> None:
        """Read until closed."""
        try:
            while not self._left.is_set():
                reply: Any = self._client.xread(self._positions, count=_READ_COUNT, block=BLOCK_MS)
                for stream, items in reply:
                    self._positions[stream] = items[-1][0]
                    if stream == self._joins:
                        self._take_in(items)
                    else:
                        self._take(self._actors[stream], items)
                self._quarantine.report()
            self._quarantine.report(now=True)
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self.error = error

    @property
    def received(self) -> dict[int, int]:
        """Per actor, the number up to which its messages have been read; it may go on after this one only."""
        return {
            self._actors[stream]: min(_sequence(position), MAX_SEQUENCE)
            for stream, position in list(self._positions.items())
            if stream != self._joins
        }

    def _follow(self, actor: int) -> None:
        key = self._keys.log(actor).encode()
        self._actors[key] = actor
        self._positions[key] = b"0-0"

    def _take_in(self, items: Iterable[tuple[bytes, dict[bytes, bytes]]]) -> None:
        """Follow actors that are not known yet; an entry that names none changes nothing."""
        for _, actor in registered(items):
            if actor is not None and actor not in self._actors.values():
                print(f"Actor {actor} joins", flush=True)
                self._follow(actor)

    def _take(self, actor: int, items: Iterable[tuple[bytes, dict[bytes, bytes]]]) -> None:
        for entry_id, fields in items:
            data = fields.get(b"m", b"")
            message = None
            try:
                self._stories[actor].follow(actor, entry_id)
                decoded = self._decode(data)
                self._stories[actor].check(actor, decoded)
                message = decoded
            except ValueError as error:  # WireError among them
                self._stories[actor].lost += 1
                self._quarantine.add(actor, entry_id, data, str(error))
            if _sequence(entry_id) <= MAX_SEQUENCE:  # others count for nothing, or the actor would end with them
                self._put(Entry(ChunkId(actor, _sequence(entry_id)), message))

    def _put(self, entry: Entry) -> None:
        while not self._left.is_set():
            with suppress(queue.Full):  # the learner is busy: the reader waits for it
                self.entries.put(entry, timeout=BLOCK_MS / 1000)
                return


def _sequence(entry_id: bytes) -> int:
    return int(entry_id.split(b"-")[0])


def _last_entry(client: Client, key: str) -> int:
    reply: Any = client.xrevrange(key, max=MAX_SEQUENCE, count=1)
    return _sequence(reply[0][0]) if reply else 0


class Inbox:
    """Messages of all actors, each handed out once, in each actor's own order.

    `read` tells, per actor, the sequence number of the last message handed out. `idle` is called about every second of
    waiting, and `absent` for the end of each line about it. Actors 0 to `nb_actor` - 1 play now; logs of as many as
    `known` are read, as those that have left may have written what replay still needs. `joining` actors, of any number,
    are taken in when they come.
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
        known: int = 0,
        joining: bool = False,
    ) -> None:
        joined = registered_actors(client, keys) if joining else []
        actors = set(range(max(nb_actor, known))) | {entry.actor for entry in joined if entry.actor is not None}
        self.read: dict[int, int] = defaultdict(int, dict.fromkeys(sorted(actors), 0))
        self._client = client
        self._keys = keys
        self._nb_actor = nb_actor
        self._joining = joining
        self._received: dict[int, int] = defaultdict(int)  # last message in pending, or handed out
        self._left_out: dict[int, int] = defaultdict(int)  # messages since the last end of a round
        self._pending: dict[int, deque[Entry]] = defaultdict(deque)
        self._ends: dict[int, deque[int]] = defaultdict(deque)  # rounds that end in pending
        self._played: dict[int, int] = defaultdict(lambda: -1, dict.fromkeys(self.read, -1))  # last round handed out
        self._backlog = {actor: _last_entry(client, keys.log(actor)) for actor in self.read}
        self._stop = stop
        self._idle = idle
        self._absent = absent
        self._next_idle = time.monotonic() + _IDLE_S
        position = (joined[0].position if joined else b"0-0") if joining else None
        self._reader = LogReader(client, keys, self.read, decode, position)
        self._reader.start()

    def close(self) -> None:
        """Stop the reader."""
        self._reader.close()

    @property
    def received(self) -> dict[int, int]:
        """Per actor, the number of its last message that has come, whether it was handed out already or not."""
        return self._reader.received

    def take_all(self) -> list[Entry]:
        """Everything that has arrived, without waiting."""
        while self._receive(timeout=0):
            pass
        return [
            entry for actor, pending in self._pending.items() for _ in range(len(pending)) for entry in self._pop(actor)
        ]

    def take_backlog(self) -> Iterable[Entry]:
        """Everything that was in the log when this inbox was made, whoever's has come."""
        patience = Patience("the experience stored in Redis")
        return self._take_up_to(self._backlog, self._check_stop, lambda: self._wait(patience))

    def take_rest(self) -> Iterable[Entry]:
        """Everything that is in the log now and was not handed out yet, even if this process shall stop."""
        joined = registered_actors(self._client, self._keys) if self._joining else []
        actors = self.read.keys() | {entry.actor for entry in joined if entry.actor is not None}
        last = {actor: _last_entry(self._client, self._keys.log(actor)) for actor in sorted(actors)}
        return self._take_up_to(last, lambda: None, self._wait_for_rest)

    def _take_up_to(self, last: dict[int, int], check: Callable[[], None], wait: Callable[[], None]) -> Iterable[Entry]:
        while behind := [actor for actor in last if self.read[actor] < last[actor]]:
            check()
            ready = [actor for actor in behind if self._pending[actor]]
            for actor in ready:
                yield from self._pop(actor)
            if not ready:
                wait()

    def take_round(self, round_: int, nb_actor: int | None = None) -> Iterable[Entry]:
        """Everything of a round that `nb_actor` played (None: those that play now), actor by actor.

        Waits until all of them have played it, but for those that have left: they will write nothing any more.
        Rounds must be asked for one after the other. Of old ones there may be less, or nothing, in a trimmed log.
        """
        for actor in range(nb_actor or self._nb_actor):
            patience = Patience(f"actor {actor} to play round {round_}", hint=self._absent)
            while self._played[actor] < round_:
                self._check_stop()
                if not self._ends[actor]:
                    if actor >= self._nb_actor and self._received[actor] >= self._backlog[actor]:
                        break
                    self._find_lost_end(actor, round_)
                    self._wait(patience)
                elif self._ends[actor][0] <= round_:
                    yield from self._pop(actor)
                else:
                    break

    def _find_lost_end(self, actor: int, round_: int) -> None:
        """If the end of this round can be among what was left out, see in the actor's state whether it has played on.

        Else nobody could: the actor waits for weights that the learner publishes only after this round. The state is
        stored in one step with the messages, so what it says is true once all up to it have been received.
        """
        if not self._left_out[actor]:
            return
        state, sequence = cast(list[bytes | None], self._client.hmget(self._keys.state(actor), "state", "sequence"))
        try:
            if state is None or whole_number(sequence) > self._received[actor]:
                return
            playing = decode_meta(state).get("round")
            if type(playing) is not int:
                raise WireError("it names no round")
        except ValueError as error:
            raise RunError(
                f"{self._left_out[actor]} messages of actor {actor} are lost, perhaps the end of round {round_} among "
                f"them, and its saved state does not tell either ({error}): the run cannot go on in lockstep; start it "
                "afresh, with the same release of this program everywhere"
            ) from error
        if playing > round_:
            self._append(Entry(ChunkId(actor, self._received[actor]), RoundEnd(playing - 1)))

    def wait(self, patience: Patience) -> None:
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

    def _wait(self, patience: Patience) -> None:
        self._check_stop()
        self._receive(timeout=0.2)
        patience.check()
        if time.monotonic() >= self._next_idle:
            self._idle()
            self._next_idle = time.monotonic() + _IDLE_S

    def _receive(self, timeout: float) -> bool:
        if self._reader.error:
            error = self._reader.error
            raise RunError(f"reading the experience failed: {type(error).__name__}: {error}") from error
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

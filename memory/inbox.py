"""The learner's view of the actors' streams: read in a thread, handed out in an order that the protocol fixes."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from memory.chunk import ChunkId
from memory.errors import RunError, Stopped
from memory.messages import Joined, Message, RoundEnd
from memory.transport import BLOCK_MS, Client, Keys
from memory.waiting import Patience
from memory.wire import WireError

_READ_COUNT = 32  # messages of a stream in one read
_QUEUE_SIZE = 256  # decoded messages waiting for the learner: back-pressure on the reader, about 130 MB of chunks
_IDLE_S = 1.0

Decoder = Callable[[bytes], Message]  # raises ValueError for what replay could not hold


class Entry(NamedTuple):
    """A message and its place in the log."""

    id: ChunkId
    message: Message | None  # None inside this file only: it could not be decoded, is left out, but counts as read


class LogReader(threading.Thread):
    """Reads and decodes the streams of all actors from their beginning on; an error in it reaches `Inbox`."""

    def __init__(self, client: Client, keys: Keys, nb_actor: int, decode: Decoder) -> None:
        super().__init__(name="log reader", daemon=True)
        self.entries: queue.Queue[Entry] = queue.Queue(_QUEUE_SIZE)
        self.error: BaseException | None = None
        self.malformed = 0
        self._client = client
        self._actors = {keys.log(actor).encode(): actor for actor in range(nb_actor)}
        self._positions: dict[Any, Any] = dict.fromkeys(self._actors, b"0-0")
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
                    self._take(stream, items)
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self.error = error

    def _take(self, stream: bytes, items: Iterable[tuple[bytes, dict[bytes, bytes]]]) -> None:
        actor = self._actors[stream]
        for entry_id, fields in items:
            self._positions[stream] = entry_id
            sequence = int(entry_id.split(b"-")[0])
            try:
                entry = Entry(ChunkId(actor, sequence), self._decode(fields[b"m"]))
            except (WireError, ValueError, KeyError) as error:
                self.malformed += 1
                print(f"Message {sequence} of actor {actor} is left out: {error}", flush=True)
                entry = Entry(ChunkId(actor, sequence), None)
            self._put(entry)

    def _put(self, entry: Entry) -> None:
        while not self._left.is_set():
            with suppress(queue.Full):  # the learner is busy: the reader waits for it
                self.entries.put(entry, timeout=BLOCK_MS / 1000)
                return


def _last_entry(client: Client, key: str) -> int:
    reply: Any = client.xrevrange(key, count=1)
    return int(reply[0][0].split(b"-")[0]) if reply else 0


class Inbox:
    """Messages of all actors, each handed out once, in each actor's own order.

    `read` tells, per actor, the sequence number of the last message handed out. `idle` is called about every second of
    waiting.
    """

    def __init__(
        self,
        client: Client,
        keys: Keys,
        nb_actor: int,
        decode: Decoder,
        stop: threading.Event,
        idle: Callable[[], None] = lambda: None,
    ) -> None:
        self.read = dict.fromkeys(range(nb_actor), 0)
        self._pending: dict[int, deque[Entry]] = {actor: deque() for actor in range(nb_actor)}
        self._ends: dict[int, deque[int]] = {actor: deque() for actor in range(nb_actor)}  # rounds that end in pending
        self._played = dict.fromkeys(range(nb_actor), -1)  # last round handed out
        self._backlog = {actor: _last_entry(client, keys.log(actor)) for actor in range(nb_actor)}
        self._stop = stop
        self._idle = idle
        self._next_idle = time.monotonic() + _IDLE_S
        self._reader = LogReader(client, keys, nb_actor, decode)
        self._reader.start()

    def close(self) -> None:
        """Stop the reader."""
        self._reader.close()

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
        while behind := [actor for actor, last in self._backlog.items() if self.read[actor] < last]:
            ready = [actor for actor in behind if self._pending[actor]]
            for actor in ready:
                yield from self._pop(actor)
            if not ready:
                self._wait(patience)

    def take_round(self, round_: int) -> Iterable[Entry]:
        """Everything of a round, actor by actor; waits until all actors have played it.

        Rounds must be asked for one after the other. Of old ones there may be less, or nothing, in a trimmed log.
        """
        for actor in self._pending:
            patience = Patience(f"actor {actor} to play round {round_}")
            while self._played[actor] < round_:
                if not self._ends[actor]:
                    self._wait(patience)
                elif self._ends[actor][0] <= round_:
                    yield from self._pop(actor)
                else:
                    break

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

    def _wait(self, patience: Patience) -> None:
        if self._stop.is_set():
            raise Stopped
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
        self._pending[entry.id.actor].append(entry)
        match entry.message:
            case RoundEnd(round=played):
                self._ends[entry.id.actor].append(played)
            case Joined(round=first):
                self._ends[entry.id.actor].append(first - 1)
        return True

"""Reads and decodes the actors' streams, each shard's in a thread, ahead of the learner."""

import queue
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from rainbow_iqn_apex.memory.broker.connection import BLOCK_MS, Client, ReplyTooLargeError
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.quarantine import Quarantine
from rainbow_iqn_apex.memory.broker.record import actor_number
from rainbow_iqn_apex.memory.broker.scripts import (
    MAX_SEQUENCE,
    READ_BYTES,
    RawMessage,
    Scripts,
    raw_message,
    sequence_of,
)
from rainbow_iqn_apex.memory.broker.stream_validator import ProgressBound, StreamValidator
from rainbow_iqn_apex.memory.chunk import ChunkId
from rainbow_iqn_apex.memory.messages import Message
from rainbow_iqn_apex.memory.wire import WireError

READ_AHEAD = 256  # decoded messages, about 130 MB of chunks, at which a reader waits; in lockstep a round may be longer
AT_ONCE = 8  # messages that are handed over together: waking the learner for each costs a tenth of decoding it
_READ_COUNT = 128  # messages in one read, at least one of each stream: the server makes up the whole reply at once
_LOOK_S = 1.0  # between two looks at the streams from which nothing comes

Decoder = Callable[[bytes], Message]  # raises ValueError for what replay could not hold


class Entry(NamedTuple):
    """A message and its place in the log."""

    id: ChunkId
    message: Message | None  # None for the readers only: an unreadable message is left out, but counts as read
    is_gone: bool = False  # whether Redis does not hold the message any more, nor any between it and the one before


class StreamReader(threading.Thread):
    """Reads and decodes the streams of the actors of a shard into `entries`; `ExperienceReader` raises its errors.

    `actors` holds, by actor, the position after which to read its stream; those before count as received.
    `joins` is the last position read in the stream of actors: the thread reads on there, and follows new actors that
    it `owns`.
    """

    def __init__(
        self, client: Client, keys: Keys, actors: Mapping[int, bytes], decode: Decoder,
        bound: Callable[[], ProgressBound], joins: bytes | None, entries: queue.Queue[list[Entry]],
        owns: Callable[[int], bool],
    ) -> None:  # fmt: skip
        super().__init__(name="log reader", daemon=True)
        self.error: BaseException | None = None
        self._entries = entries
        self._decoded: list[Entry] = []  # not handed over yet
        self._client = client.of(keys.actors)
        self._scripts = Scripts(client)
        self._quarantine = Quarantine(client, keys)
        self._keys = keys
        self._actors: dict[bytes, int] = {}  # by the key of the log
        self._positions: dict[bytes, bytes] = {}
        self._validators: dict[int, StreamValidator] = defaultdict(StreamValidator)
        self._joins = keys.actors.encode()
        for actor, start in actors.items():
            self._follow(actor, start)
        if joins is not None:
            self._positions[self._joins] = joins
        self._decode = decode
        self._bound = bound
        self._owns = owns
        self._careful = False  # whether a script fetches the messages, as one read would have too many bytes
        self._turn = 0
        self._looked: dict[bytes, bytes] = {}  # positions at the last look for messages that are gone
        self._next_look = time.monotonic() + _LOOK_S
        self._left = threading.Event()

    def leave(self) -> None:
        """Stop reading after the read under way, without waiting for that; `join` does."""
        self._left.set()

    def run(self) -> None:
        """Read until told to leave."""
        try:
            while not self._left.is_set():
                for stream, messages in self._read():
                    self._positions[stream] = messages[-1].id
                    if stream == self._joins:
                        self._take_in(messages)
                    else:
                        self._take(self._actors[stream], messages)
                self._hand_over()
                if time.monotonic() >= self._next_look:
                    self._pass_gone()
                self._quarantine.report()
            self._quarantine.report(now=True)
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self.error = error

    def _read(self) -> list[tuple[bytes, list[RawMessage]]]:
        """Wait a moment for messages, and return them by stream, no more than READ_BYTES of them."""
        if not self._careful:
            try:
                with self._client.replies_up_to(READ_BYTES):
                    positions: Any = self._positions  # redis-py declares dictionaries of its own types only
                    reply: Any = self._client.xread(
                        positions, count=max(1, _READ_COUNT // len(positions)), block=BLOCK_MS
                    )
                return [(stream, [raw_message(*item) for item in items]) for stream, items in reply]
            except ReplyTooLargeError:
                self._careful = True
        streams = deque(self._positions)
        streams.rotate(self._turn)  # or a flooded first stream would keep all others waiting
        self._turn += 1
        found = self._scripts.read({stream: self._positions[stream] for stream in streams}, READ_BYTES)
        self._careful = bool(found)
        return found

    def _pass_gone(self) -> None:
        """Go on after messages that were deleted or trimmed unread: their actor waits until they count as read."""
        idle = {stream: at for stream, at in self._positions.items() if self._looked.get(stream) == at}
        idle.pop(self._joins, None)
        for stream, last in self._scripts.passed(idle).items() if idle else ():
            if sequence_of(last) > sequence_of(idle[stream]):
                self._positions[stream] = last
                if sequence_of(last) <= MAX_SEQUENCE:
                    self._put(Entry(ChunkId(self._actors[stream], sequence_of(last)), None, is_gone=True))
        self._hand_over()
        self._looked = dict(self._positions)
        self._next_look = time.monotonic() + _LOOK_S

    @property
    def received(self) -> dict[int, int]:
        """Per actor, the number of its last message read, or trimmed before; new ones may have greater numbers only."""
        return {
            self._actors[stream]: min(sequence_of(position), MAX_SEQUENCE)
            for stream, position in list(self._positions.items())
            if stream != self._joins
        }

    @property
    def quarantined(self) -> int:
        """Return how many messages could not be read."""
        return self._quarantine.count

    def _follow(self, actor: int, start: bytes) -> None:
        key = self._keys.log(actor).encode()
        self._actors[key] = actor
        self._positions[key] = start

    def _take_in(self, entries: Iterable[RawMessage]) -> None:
        """Follow actors that are new; ignore an entry that names no actor."""
        for entry in entries:
            actor = actor_number(entry.data)
            if actor is not None and self._owns(actor) and actor not in self._actors.values():
                print(f"{self._keys.title(actor).capitalize()} joins", flush=True)
                self._follow(actor, b"0-0")

    def _take(self, actor: int, messages: Iterable[RawMessage]) -> None:
        validator = self._validators[actor]
        for raw in messages:
            message = None
            try:
                validator.follow(actor, raw.id)
                if raw.size > len(raw.data):
                    raise WireError(f"message of {raw.size} bytes, {READ_BYTES} are allowed")
                decoded = self._decode(raw.data)
                validator.check(actor, decoded, self._bound())
                message = decoded
            except ValueError as error:  # WireError among them
                validator.leave_out()
                self._quarantine.add(actor, raw.id, raw.data, str(error), raw.size)
            if sequence_of(raw.id) <= MAX_SEQUENCE:  # a greater one, if counted, would leave the actor no number
                self._put(Entry(ChunkId(actor, sequence_of(raw.id)), message))

    def _put(self, entry: Entry) -> None:
        self._decoded.append(entry)
        if len(self._decoded) == AT_ONCE:
            self._hand_over()

    def _hand_over(self) -> None:
        while self._decoded and not self._left.is_set():
            with suppress(queue.Full):  # the learner is busy: the reader waits for it
                self._entries.put(self._decoded, timeout=BLOCK_MS / 1000)
                self._decoded = []

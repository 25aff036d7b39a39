"""Writes down every message of a run as it comes into Redis: the log itself is trimmed on the way."""

import threading
import time
from typing import Any

import redis

from rainbow_iqn_apex.memory.broker.keys import Keys
from tests.deadline import Deadline


class Tap:
    """Reads the actors' streams, past the proxies, from the beginning on; use as a context manager."""

    def __init__(self, client: redis.Redis, name: str, actors: int) -> None:
        self.messages: dict[int, list[tuple[int, bytes]]] = {
            actor: [] for actor in range(actors)
        }  # (sequence, data), of this run
        self.seen: dict[int, list[float]] = {actor: [] for actor in range(actors)}  # when, by time.monotonic()
        self.runs: list[str] = []  # ids, in the order in which they were met
        self._client = client
        self._name = name
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._read, name="tap", daemon=True)

    def __enter__(self) -> "Tap":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join()
        self._client.close()

    def catch_up(self) -> None:
        """Until everything that is in Redis has been written down."""
        keys = Keys(self._name, self.runs[-1])
        deadline = Deadline(20, "the tap to follow")
        for actor, messages in self.messages.items():
            newest: Any = self._client.xrevrange(keys.log(actor), count=1)
            while newest and (not messages or messages[-1][0] < int(newest[0][0].split(b"-")[0])):
                deadline.check()
                time.sleep(0.02)

    def _read(self) -> None:
        positions: Any = {}
        while not self._left.is_set():
            try:
                run: Any = self._client.hget(Keys(self._name, "").run, "run_id")
                if not run:
                    time.sleep(0.05)
                    continue
                if [run.decode()] != self.runs[-1:]:
                    self.runs.append(run.decode())
                    keys = Keys(self._name, self.runs[-1])
                    positions = {keys.log(actor): "0-0" for actor in self.messages}
                    self.messages = {actor: [] for actor in self.messages}
                    self.seen = {actor: [] for actor in self.messages}
                found: Any = self._client.xread(positions, count=500, block=200)
                for stream, items in found:
                    actor = int(stream.rsplit(b":", 1)[1])
                    for entry_id, fields in items:
                        positions[stream.decode()] = entry_id
                        self.messages[actor].append((int(entry_id.split(b"-")[0]), fields[b"m"]))
                        self.seen[actor].append(time.monotonic())
            except (redis.ConnectionError, redis.TimeoutError):
                time.sleep(0.05)  # it is being restarted

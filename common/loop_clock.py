"""Divides the time of a loop among its named parts.

clock = LoopClock("other", "act", "environment")
with clock.part("act"):
    ...
shares = Shares(clock)      # in another thread
shares.read()               # {"other": 0.1, "act": 0.6, "environment": 0.3}
"""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class LoopClock:
    """Counts the seconds of each part; every moment belongs to one part, the first one outside of all blocks.

    One thread enters parts, any thread may read.
    """

    def __init__(self, *parts: str) -> None:
        self._seconds = dict.fromkeys(parts, 0.0)
        self._now = (parts[0], time.perf_counter(), 0.0)  # part, since when, and its seconds before that

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Let a block belong to this part, and blocks within it to their own."""
        before = self.enter(name)
        try:
            yield
        finally:
            self.enter(before)

    def enter(self, part: str) -> str:
        """Begin a part, and return the one that was under way."""
        before, since, spent = self._now
        now = time.perf_counter()
        self._seconds[before] = spent + now - since
        self._now = (part, now, self._seconds[part])
        return before

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each part so far; the part under way counts up to now."""
        while True:
            under_way = part, since, spent = self._now
            seconds = self._seconds.copy()
            seconds[part] = spent + time.perf_counter() - since  # in the place of what `enter` may just have written
            if self._now is under_way:  # else a part that has begun meanwhile would count twice
                return seconds


class Shares:
    """Reads a clock from time to time, and divides the time of the last `readings` of these times."""

    def __init__(self, clock: LoopClock, readings: int = 10) -> None:
        self._clock = clock
        self._seen = deque([clock.seconds()], maxlen=readings + 1)

    def read(self) -> dict[str, float]:
        """Return each part's share of the time; the shares add up to 1, or are all 0."""
        seconds = self._clock.seconds()
        first = self._seen[0]
        self._seen.append(seconds)
        spent = {part: max(0.0, seconds[part] - first[part]) for part in seconds}
        total = sum(spent.values())
        return {part: time_ / total if total else 0.0 for part, time_ in spent.items()}

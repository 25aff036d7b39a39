"""How fast a counter grows."""

import time
from collections import deque
from collections.abc import Callable


class Rate:
    """Averages the growth of a counter over the last seconds."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._seen: deque[tuple[float, float]] = deque()

    def per_second(self, count: float) -> float | None:
        """Note a count of this moment, and return the growth per second; None until it has grown.

        What comes before the first growth, such as a wait for others to start, does not count. A count that falls, as
        of a learner that goes back to its checkpoint, begins again.
        """
        now = self._clock()
        if self._seen and (count < self._seen[-1][1] or (len(self._seen) == 1 and count == self._seen[0][1])):
            self._seen.clear()
        self._seen.append((now, count))
        while len(self._seen) > 2 and self._seen[1][0] <= now - self._seconds:
            self._seen.popleft()
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        return (last - first) / (ended - began) if ended > began else None

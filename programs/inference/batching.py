"""When a batch begins: there is no time to tune.

Half of the live askers wait, or the first one has waited for as long as a batch takes on average. An asker is a group
of environments of a client. One that has gone, or has not asked for a second, is not waited for.
"""

from collections.abc import Hashable

_LIVE_S = 1.0  # since its last request, for which an asker counts as live
_LOOK_S = 0.1  # between two looks who is still live
_SMOOTHING = 0.1  # share of the newest batch in the mean


class BatchRule:
    """Decides when to begin; times are seconds of one clock."""

    def __init__(self) -> None:
        self.mean_s = 0.0  # that a batch takes
        self._asked: dict[tuple[Hashable, int], float] = {}  # when each live asker has last asked
        self._next_look = 0.0
        self._waiting: list[tuple[Hashable, float]] = []  # the next batch: who has asked, and when, in that order

    def ask(self, client: Hashable, group: int, now: float) -> None:
        """Count a request of a client for a group of its environments."""
        self._asked[client, group] = now
        self._waiting.append((client, now))

    def wait_s(self, now: float) -> float:
        """Return for how many seconds to wait for more requests: 0 to begin, infinite without any request."""
        if not self._waiting:
            return float("inf")
        if now >= self._next_look:
            self._next_look = now + _LOOK_S
            self._asked = {who: at for who, at in self._asked.items() if now - at < _LIVE_S}
        if 2 * len(self._waiting) >= len(self._asked):
            return 0.0
        return max(0.0, self._waiting[0][1] + self.mean_s - now)

    def leave(self, client: Hashable) -> None:
        """Forget a client that has gone, and its requests."""
        self._asked = {who: at for who, at in self._asked.items() if who[0] != client}
        self._waiting = [waiting for waiting in self._waiting if waiting[0] != client]

    def begin(self) -> None:
        """Take all requests for a batch."""
        self._waiting.clear()

    def end(self, seconds: float) -> None:
        """Count a batch that took so long."""
        self.mean_s = seconds if self.mean_s == 0 else self.mean_s + _SMOOTHING * (seconds - self.mean_s)

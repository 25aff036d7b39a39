"""Times that only go forward, from those of a clock that may be set back."""

import math


class SteadyClock:
    """Goes on from its last time where the clock was set back; a jump forward stays one."""

    def __init__(self) -> None:
        self._shift, self._latest = 0.0, -math.inf

    def at(self, time: float) -> float:
        """Return the steady time [s] at which the clock shows a time [s]; call it in the order of events."""
        self._shift += max(0.0, self._latest - time - self._shift)
        self._latest = time + self._shift
        return self._latest

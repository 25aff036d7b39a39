"""Prints what a process waits for, and for how long, every ten seconds of waiting: also inside a call that blocks.

with waiting("the Redis server"):
    ask()
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rainbow_iqn_apex.common.loop_clock import LoopClock

FOR_WEIGHTS = "the learner to publish weights version "  # what an actor waits for in lockstep
FOR_ROUND = " to play round "  # what the learner waits for an actor to do

INTERVAL_S = 10.0
_FRESH_S = 1.5  # most time between two checks of one wait, as each blocks for a second at most
_LATE_S = 2.5  # a read of Redis blocks for a second when all is well

_waits: dict[int, tuple[str, float]] = {}  # by thread: what for, and since when
_checked: tuple[str, float] = ("", 0.0)  # what the newest check of a WaitReporter was about, and when it was
_late: dict[int, tuple[LoopClock, str]] = {}  # by thread whose wait is late: its clock, and the part that it left
_own = threading.local()  # clock: that of this thread's loop
_watcher_started = threading.Lock()


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Name what this thread waits for within the block; of nested blocks the outermost counts."""
    thread = threading.get_ident()
    if thread in _waits:
        yield
        return
    if _watcher_started.acquire(blocking=False):
        threading.Thread(target=_watch, name="waits", daemon=True).start()
    _waits[thread] = (what, time.monotonic())
    try:
        yield
    finally:
        del _waits[thread]
        if left := _late.pop(thread, None):
            clock, part = left
            clock.enter(part)


def book_on(clock: LoopClock) -> None:
    """Count this thread's late waits from now on as the part "wait" of its loop's clock."""
    _own.clock = clock


def be_late() -> None:
    """Count what is left of this thread's wait as such: the call that waits takes longer than its work does."""
    thread = threading.get_ident()
    clock = getattr(_own, "clock", None)
    if clock and thread in _waits and thread not in _late:
        _late[thread] = clock, clock.enter("wait")


def instead(what: str) -> None:
    """Rename what this thread waits for, within `waiting`; elsewhere nothing is waited for."""
    thread = threading.get_ident()
    if thread in _waits:
        _waits[thread] = (what, _waits[thread][1])


def _watch() -> None:
    printed: dict[str, float] = {}  # by what is waited for: when its last line was printed, or when its wait began
    while True:
        time.sleep(INTERVAL_S / 20)
        printed = print_due(printed, time.monotonic())


def print_due(printed: dict[str, float], now: float) -> dict[str, float]:
    """Print a line about each wait that is due; return when each wait's last line was printed, as in `printed`."""
    since = _longest()
    printed = {what: printed.get(what, start) for what, start in since.items()}
    for what, start in since.items():
        if now - max(printed[what], start) >= INTERVAL_S:
            printed[what] = now
            print(line(what, now - start), flush=True)
    return printed


def _longest() -> dict[str, float]:
    """Return what is waited for, and since when: of several threads that wait for the same, the first counts."""
    since: dict[str, float] = {}
    for what, start in list(_waits.values()):
        since[what] = min(start, since.get(what, start))
    return since


def current() -> str:
    """Return what this process waits for, empty for nothing; a call that blocks counts when it takes too long."""
    now = time.monotonic()
    what, checked = _checked
    if now - checked < _FRESH_S:
        return what
    late = {what: start for what, start in _longest().items() if now - start > _LATE_S}
    return min(late, key=lambda what: late[what], default="")


def line(what: str, seconds: float) -> str:
    """Return the line to print."""
    return f"Waiting for {what} ({seconds:.0f} sec)"


def no_hint() -> str:
    """Add nothing to a line about waiting."""
    return ""


class WaitReporter:
    """Prints the same lines for a loop that asks again and again: call `check` in the loop."""

    def __init__(
        self,
        what: str,
        interval: float | None = None,
        hint: Callable[[], str] = no_hint,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`hint` returns the end of a line when the line is printed: who is missing, what to do."""
        self.what = what
        self._hint = hint
        self._interval = INTERVAL_S if interval is None else interval
        self._clock = clock
        self._start = clock()
        self._next = self._start + self._interval

    def check(self) -> None:
        """Print a line if one is due."""
        global _checked
        now = self._clock()
        _checked = (self.what, now)
        if now >= self._next:
            self._next = now + self._interval
            print(line(self.what, now - self._start) + self._hint(), flush=True)

"""Deadlines that a busy machine does not bring nearer: they do not count the time in which processes queue to run.

wait_until(path.exists, "the file to be there", 30)

clock = Clock()
...
assert clock.seconds() < 5
"""

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

_TICK_S = 0.2  # between two looks at all processes, which take some milliseconds


class Clock:
    """Counts the seconds that the machine gives to this process and its descendants.

    These are the seconds on the wall less those that their threads have spent waiting for a processor, which is what
    the load of others adds, and at least the processor time that they have used, shared out over the cores. A process
    that hangs neither runs nor queues: for it the clock is the one on the wall. So it is where Linux's counters
    (`/proc/<pid>/task/<tid>/schedstat`) are missing.
    """

    def __init__(self) -> None:
        self._cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._seconds = 0.0
        self._looked_at, self._threads = time.monotonic(), _times_of_threads()

    def seconds(self) -> float:
        """Seconds since the clock was made."""
        now, threads = time.monotonic(), _times_of_threads()
        passed = now - self._looked_at
        used = queued = 0.0
        for thread, (used_now, queued_now) in threads.items():
            used_before, queued_before = self._threads.get(thread, (0.0, 0.0))
            used, queued = used + used_now - used_before, queued + queued_now - queued_before
        self._seconds += max(passed - queued, min(passed, used / self._cores))
        self._looked_at, self._threads = now, threads
        return self._seconds


def _times_of_threads() -> dict[tuple[int, str], tuple[float, float]]:
    """Seconds that each thread has used and has queued for, by process and thread; of this process and descendants."""
    times = {}
    for pid in (os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))):
        with suppress(OSError):  # it has ended
            for thread in Path(f"/proc/{pid}/task").iterdir():
                used, queued, _ = (thread / "schedstat").read_text().split()
                times[pid, thread.name] = int(used) / 1e9, int(queued) / 1e9
    return times


class Deadline:
    """Fails a test that waits for `what` for more than `seconds` of a `Clock`; `what` may be a function that tells."""

    def __init__(self, seconds: float, what: str | Callable[[], str]) -> None:
        self._seconds = seconds
        self._what = what
        self._clock: Clock | None = None
        self._next_look = time.monotonic() + _TICK_S  # what is there at once costs no look at all processes

    def check(self) -> None:
        """Call this again and again while waiting; raises AssertionError when it has taken too long."""
        if time.monotonic() < self._next_look:
            return
        self._clock = self._clock or Clock()
        if self._clock.seconds() > self._seconds:
            what = self._what if isinstance(self._what, str) else self._what()
            raise AssertionError(f"waited {self._seconds:g} s for {what}")
        self._next_look = time.monotonic() + _TICK_S


def wait_until(
    true: Callable[[], object],
    what: str | Callable[[], str],
    seconds: float = 30,
    every: float = 0.02,
    progress: Callable[[], object] = lambda: None,
) -> None:
    """Wait until a condition is true, looking at it every so many seconds; the time begins anew with any progress."""
    deadline, before = Deadline(seconds, what), progress()
    while not true():
        if (now := progress()) != before:
            deadline, before = Deadline(seconds, what), now
        deadline.check()
        time.sleep(every)

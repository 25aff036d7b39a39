"""Deadlines: others' load does not bring them nearer, and what hangs does not get past them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.deadline import Clock, Deadline, wait_until
from tests.processes import Processes

BUSY = "while True: pass"
WORK = "import time\nwhile time.process_time() < 0.8: pass"


@pytest.fixture
def load() -> Iterator[None]:
    """Three busy processes for each core, which are nobody's children, as those of other users are."""
    start = f"""import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", {BUSY!r}], stdout=subprocess.DEVNULL).pid)"""
    count = 3 * len(os.sched_getaffinity(0))
    started = [int(subprocess.check_output([sys.executable, "-c", start])) for _ in range(count)]
    yield
    for pid in started:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="needs the scheduler's counters of Linux")  # noqa: PTH110
@pytest.mark.usefixtures("load")
def test_the_load_of_others_does_not_count(processes: Processes) -> None:
    # Mutation: `return time.monotonic() - start`.
    clock, start = Clock(), time.monotonic()
    process = processes.start("-c", WORK)
    while process.exit_code is None:
        clock.seconds()
        time.sleep(0.05)
    counted, passed = clock.seconds(), time.monotonic() - start
    assert 0.5 <= counted < 0.7 * passed, (counted, passed)


def test_what_hangs_is_not_waited_for() -> None:
    # Mutation: a clock of processor time alone.
    clock = Clock()
    time.sleep(0.5)
    assert clock.seconds() > 0.4
    with pytest.raises(AssertionError, match=r"waited 0\.3 s for the moon"):
        wait_until(lambda: False, lambda: "the moon", 0.3)


def test_what_works_for_too_long_is_not_waited_for() -> None:
    # Mutation: without `min(passed, used / self._cores)`; the children queue for each other then, and nothing counts.
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(3 * len(os.sched_getaffinity(0)))]
    deadline, start = Deadline(0.5, "the end"), time.monotonic()
    try:
        with pytest.raises(AssertionError, match="waited"):
            while time.monotonic() < start + 60:
                deadline.check()
                time.sleep(0.01)
    finally:
        for process in busy:
            process.kill()
            process.wait()


def test_what_is_there_is_not_waited_for() -> None:
    wait_until(lambda: True, "nothing", 0)


def test_progress_gives_more_time() -> None:
    # Mutation: a deadline that is not renewed.
    clock = Clock()
    wait_until(lambda: clock.seconds() > 1.2, "the end", 0.8, progress=lambda: clock.seconds() > 0.6)
    with pytest.raises(AssertionError, match=r"waited 0\.4 s for the end"):
        wait_until(lambda: False, "the end", 0.4, progress=lambda: 1)

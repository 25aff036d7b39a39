"""This process: its signals, its standard streams, how it ends, and its processor.

The module imports next to nothing: a launcher calls `end_at_once` before the imports that take seconds.
"""

import ctypes
import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from rainbow_iqn_apex.common.errors import Stopped
from rainbow_iqn_apex.common.signals import KILLED, STOP_SIGNALS
from rainbow_iqn_apex.common.text import one_line

# Variables that a supervisor sets, the first one in the recipes of deploy/, too. The command has worked before: what is
# missing now (a server, memory, room on a disk, a folder) is missing for a while, and is no mistake of the command. So
# programs end with exit code 1 instead of 2, and start even where memory or disk seem too small.
HAS_WORKED = "RAINBOW_HAS_WORKED"
ENDS_WITH = "RAINBOW_ENDS_WITH"  # the number of the process that has started this one, and whose end ends it

RESULT = "Result: "  # begins the line of a learner that ends, which the start script prints as its own last
_STOPPING = "Stopping: saving what there is"
_PAUSE_S = 0.1
_FAULTS = (r"error: |cannot go on", r"^\[learner\] ", ".")  # lines that explain a failure, the best ones first


def has_worked() -> bool:
    """Return whether a supervisor starts this program again, by a command that has worked before."""
    return bool(os.environ.get(HAS_WORKED))


# --- requests to stop: Ctrl-C, SIGTERM, or a terminal that closes (SIGHUP) ---


def end_at_once() -> None:
    """Let a request to stop end the process without a traceback: nothing is there yet that could be saved.

    Linux delivers a signal to process 1, such as a container's program, only if that process has a handler for it.
    """
    _handle(_end if os.getpid() == 1 else signal.SIG_DFL)


def _end(number: int, _: object) -> None:
    os._exit(KILLED + number)


def _handle(action: Callable[[int, object], object] | signal.Handlers) -> None:
    for number in STOP_SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup asks for that
            signal.signal(number, action)


def stop_on_signals() -> threading.Event:
    """Return an event that a request to stop sets; a second one changes nothing.

    It is also set when nobody reads the standard output any more, as when the start script was killed.

    A thread sets the event. A handler would run between any two operations of the main thread, which may then hold the
    lock of the event or of the standard output. So a handler could wait for its own thread for ever, or break off a
    line half-way.
    """
    stop = threading.Event()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def request(*_: object) -> None:
        with suppress(BlockingIOError):  # it is full of requests
            os.write(writing, b"\0")

    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)  # Python writes to the pipe, also while C code runs
    _handle(request)  # for signals that come while the descriptor is not set, as `kept_settings` has it for a moment
    threading.Thread(target=_watch_readers, args=(request,), name="readers", daemon=True).start()
    threading.Thread(target=_watch, args=(reading, stop), name="stop", daemon=True).start()
    return stop


def _watch_readers(request: Callable[[], None]) -> None:
    """Let no line that is printed end the program before it has saved, also where its reader ends after a Ctrl-C."""
    while True:
        if 1 in discard_unread(timeout_ms=None):
            request()


def _watch(reading: int, stop: threading.Event) -> None:
    os.read(reading, 1)
    discard_unread()  # before the program prints that it saves: Ctrl-C ends its reader as well
    stop.set()
    has_screen = sys.stdout is not sys.__stdout__
    if has_screen:  # it puts whole lines above its picture
        with suppress(OSError):
            sys.stdout.write(f"{_STOPPING}\n")
        return
    line = "\n" if sys.stdout.isatty() else ""  # a terminal has shown ^C, perhaps in the line of a progress bar
    with suppress(OSError):  # the reader may have ended
        # In one write: `print` hands over a line and its end apart, and the main thread may be printing, too.
        os.write(1, f"{line}{_STOPPING}\n".encode())


class StopRequest:
    """Notes the requests to stop of a program that only waits for others; a second one changes nothing."""

    def __init__(self) -> None:
        self._requested = False
        self._parent = os.environ.get(ENDS_WITH, "")

    def listen(self) -> None:
        """Note the signals from now on, but for those that this process was started to ignore, as by nohup."""
        for number in STOP_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._note)

    def _note(self, *_: object) -> None:
        self._requested = True  # and no more: a handler runs between any two operations of the main thread

    def pause(self) -> None:
        """Wait a moment; raises Stopped if a stop was requested, or who has started this process was killed."""
        time.sleep(_PAUSE_S)
        if self._requested or self._parent not in ("", str(os.getppid())):
            raise Stopped


# --- standard streams, of which a reader may end, or a disk be full ---


def reader(*numbers: int) -> select.poll:
    """Return what reports only that nobody reads these streams any more: the standard output if none is given."""
    waiting = select.poll()
    for number in numbers or (1,):
        waiting.register(number, 0)
    return waiting


def discard_unread(timeout_ms: int | None = 0) -> set[int]:
    """Discard what is printed from now on to streams that nobody reads any more, where it would be an error.

    Return the numbers of these streams; waits for one until the timeout, None: for ever.
    """
    unread = {number for number, _ in reader(1, 2).poll(timeout_ms)}
    for number in unread:
        os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    return unread


@contextmanager
def checked_output(program: str) -> Iterator[None]:
    """End the program with exit code 1 if the block, or what is left of its output, cannot be written.

    Print one line with the reason; none if the reader has ended, as `| head` does. A program that is started without
    standard streams writes what it prints nowhere.
    """
    provide_streams()
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # here: what Python fails to write at the very end is a traceback
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"{program}: {error}", file=sys.stderr)
        sys.exit(1)


def provide_streams() -> None:
    """Give this process the standard streams that it lacks: sockets would get their numbers, and what is printed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest number that is free
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115 - to the end of the process
            setattr(sys, f"__{name}__", getattr(sys, name))


def fault_in(lines: Sequence[str]) -> str:
    """Return the line of a start script that best explains a failure; its last lines are about stopping the others."""
    return next((found for pattern in _FAULTS if (found := newest_with(pattern, lines))), "it has printed nothing")


def newest_with(pattern: str, lines: Sequence[str]) -> str:
    """Return the newest line that has the pattern, empty if there is none."""
    found = next((line for line in reversed(lines) if re.search(pattern, line)), "")
    return one_line(found) if found.strip() else ""


# --- the processor ---


def prepare_processor() -> None:
    """Let idle threads of OpenMP sleep soon, and let glibc keep the memory that tensors free; before torch is imported.

    Idle threads that spin on take the cores from the actors: a small update of the learner took 113 ms instead of 8.
    Idle threads that sleep at once have to be woken for each operation. Some microseconds of spinning are between the
    two (in GNU's library, which PyTorch uses on Linux).

    Memory that glibc returns to the kernel has to be faulted in again: with that, an update of the `cpu` preset took
    12.6 ms instead of 10.6. Tensors above 32 MiB would be mapped again whatever the threshold is, so mapping is given
    up: an update of R2D2 took 4.6 s of processor time instead of 3.1, a third of it in the kernel.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    trim_threshold = -1  # parameters of mallopt(3)
    mmap_threshold = -3
    mmap_max = -4
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return  # another C library
    mallopt(trim_threshold, 2**30)
    mallopt(mmap_threshold, 2**25)
    mallopt(mmap_max, 0)

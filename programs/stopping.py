"""Stop a program by Ctrl-C, SIGTERM or a closed terminal: at once while it loads, later by an event that loops check.

This module imports next to nothing, as a launcher calls `end_at_once` before the imports that take seconds.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from rainbow_iqn_apex.common.signals import KILLED, STOP_SIGNALS
from rainbow_iqn_apex.programs import standard_output

_LINE = "Stopping: saving what there is"


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
        if 1 in standard_output.discard_unread(timeout_ms=None):
            request()


def _watch(reading: int, stop: threading.Event) -> None:
    os.read(reading, 1)
    standard_output.discard_unread()  # before the program prints that it saves: Ctrl-C ends its reader as well
    stop.set()
    has_screen = sys.stdout is not sys.__stdout__
    if has_screen:  # it puts whole lines above its picture
        with suppress(OSError):
            sys.stdout.write(f"{_LINE}\n")
        return
    line = "\n" if sys.stdout.isatty() else ""  # a terminal has shown ^C, perhaps in the line of a progress bar
    with suppress(OSError):  # the reader may have ended
        # In one write: `print` hands over a line and its end apart, and the main thread may be printing, too.
        os.write(1, f"{line}{_LINE}\n".encode())

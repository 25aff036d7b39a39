"""Signals: those that ask a program to stop, blocking them for a child, and naming the one that has ended a process."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C, a supervisor, a terminal that closes
KILLED = 128  # a shell's exit code for a process that a signal has ended is this plus the signal's number


@contextmanager
def blocked(*numbers: signal.Signals) -> Iterator[None]:
    """Block signals within the block; a process that is started there inherits that, and gets none of them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def has_stopped(code: int) -> bool:
    """Return whether a process that was asked to stop has ended in good order, perhaps while it loaded."""
    return code in (0, -signal.SIGTERM, KILLED + signal.SIGTERM)


def describe_end(code: int, failed: str = "has ended") -> str:
    """Return how a process has ended, after its name: "has ended with exit code 1" or "was killed by SIGKILL".

    `code` is Python's (minus the signal's number) or a shell's (`KILLED` plus that number).
    """
    try:
        return f"was killed by {signal.Signals(-code if code < 0 else code - KILLED).name}"
    except ValueError:  # no signal has this number
        return f"{failed} with exit code {code}"

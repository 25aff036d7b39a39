"""What a program does when its standard output takes no more: its reader has ended, or the disk is full."""

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager


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
def checked(program: str) -> Iterator[None]:
    """End the program with exit code 1 if the block, or what is left of its output, cannot be written.

    Print one line with the reason; none if the reader has ended, as `| head` does. A program that is started without
    standard streams writes what it prints nowhere.
    """
    provide()
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


def provide() -> None:
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

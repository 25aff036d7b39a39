"""What a program does when its standard output takes no more: its reader has ended, or the disk is full."""

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def reader() -> select.poll:
    """Return what reports only that nobody reads the standard output any more (or that there is none, POLLNVAL)."""
    waiting = select.poll()
    waiting.register(1, 0)
    return waiting


@contextmanager
def checked(program: str) -> Iterator[None]:
    """End the program with exit code 1 if the block, or what is left of its output, cannot be written.

    Print one line with the reason; none if the reader has ended, as `| head` does.
    """
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

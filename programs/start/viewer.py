"""Show in a window what a process writes, until it ends: viewer.py PIPE PROCESS_ID, which runs inside the window.

Ctrl-C in the window, or closing it, asks the process to save and stop.
"""

import os
import signal
import sys
from contextlib import suppress

QUESTION = b"Press Enter to close this window. "  # at the end of the lines of a process that has failed
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def show(pipe: str, process_id: int) -> None:
    """Copy the pipe to this window."""

    def stop_process(*_: object) -> None:
        with suppress(ProcessLookupError):
            os.kill(process_id, signal.SIGTERM)

    for number in _SIGNALS:
        signal.signal(number, stop_process)
    end = b""
    with open(pipe, "rb", buffering=0) as lines:  # noqa: PTH123 - no further import, as a window shall open at once
        while data := lines.read(65536):
            end = (end + data)[-len(QUESTION) :]
            with suppress(OSError):  # the window is closed, and the process still saves
                os.write(1, data)
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    if end == QUESTION and sys.stdin.isatty():
        sys.stdin.readline()


if __name__ == "__main__":
    with suppress(FileNotFoundError):  # the start script waits for this window no longer
        show(sys.argv[1], int(sys.argv[2]))

"""Start, watch and stop the learner, an actor or a server of pages as a child of the start script."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from rainbow_iqn_apex.common.signals import KILLED, describe_end, has_stopped
from rainbow_iqn_apex.memory.broker.leases import printable
from rainbow_iqn_apex.programs.process import HAS_WORKED
from rainbow_iqn_apex.programs.start.output import Output
from rainbow_iqn_apex.programs.start.viewer import QUESTION

_WRONG_COMMAND = 2
_STARTS_S = 5  # a process that fails sooner would only fail again
WORKS_S = 60  # a process that fails later has worked before
_MOST_RESTARTS = 5  # of a process that has never worked
MOST_RETURNS = 20  # without work in between, of one that has: some 15 minutes
_LONGEST_PAUSE_S = 60.0

OpenWindow = Callable[[str, int], int | None]
Clock = Callable[[], float]


def no_window(_name: str, _process_id: int) -> None:
    """Open none: all lines go to this terminal."""


def pause_s(restarts: int) -> float:
    """Return how long to wait before the next start, after so many that have been of no use."""
    return min(2.0 ** min(restarts - 1, 10), _LONGEST_PAUSE_S)


class Process:
    """A process in a session of its own, so that the terminal's Ctrl-C does not reach it."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        takes: Callable[[bytes], bool] = lambda _: False,
        again: Sequence[str] = (),
        clock: Clock = time.monotonic,
    ) -> None:
        """`takes` gets each line of the process first, and returns whether it need not be printed.

        `again` is the command after it has worked, where that is another one.
        """
        self.name = name
        self.exit_code: int | None = None  # None while it runs, and before
        self.started = self.ended = 0.0  # by the clock
        self._clock = clock
        self._command, self._again = command, again or command
        self._takes = takes
        self._has_worked = False
        self._restarts = 0  # without work in between
        self._stopping = False
        self._popen: subprocess.Popen[bytes] | None = None
        self._output: Output | None = None

    def start(self, open_window: OpenWindow) -> None:
        """Start it, with a new window for its lines, or none."""
        self._popen = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | ({HAS_WORKED: "yes"} if self._has_worked else {}),
            start_new_session=True,
        )
        self.started, self.exit_code, self._output = self._clock(), None, None
        window = open_window(self.name, self._popen.pid)
        assert self._popen.stdout is not None
        self._output = Output(self._popen.stdout, self.name, window, self._takes)

    def runs(self) -> bool:
        """Return whether it runs; when it has ended, what it left behind is cleaned up."""
        if self._popen is None or self.exit_code is not None:
            return False
        code = self._popen.poll()
        if code is None:
            return True
        self.exit_code, self.ended = code if code >= 0 else KILLED - code, self._clock()
        self._signal_all(signal.SIGKILL)  # its helpers
        if self._output:
            failed = f"{self.end}. ".encode() + QUESTION
            self._output.close(failed if self.exit_code and not self._stopping else b"")
        return False

    @property
    def end(self) -> str:
        """How it has ended, in words."""
        assert self.exit_code is not None
        return f"{self.name} {describe_end(self.exit_code)}"

    @property
    def last_words(self) -> str:
        """The last line that it has printed."""
        return printable(self._output.last_line.decode(errors="replace")) if self._output else ""

    def may_go_on(self) -> bool:
        """Return whether starting it again makes sense: it was killed, or has failed after some seconds.

        One that has worked before may fail at once: what it needs, such as a server, is away for a while.
        """
        if self.exit_code in (0, _WRONG_COMMAND, None):
            return False
        if self._has_worked or self._lived >= WORKS_S:
            return self._lived >= WORKS_S or self._restarts < MOST_RETURNS
        return (self.exit_code > KILLED or self._lived >= _STARTS_S) and self._restarts < _MOST_RESTARTS

    @property
    def _lived(self) -> float:
        return self.ended - self.started

    def is_due(self) -> bool:
        """Return whether it may be started again now: after ever longer pauses if that has been of no use yet."""
        if self._lived >= WORKS_S or not self._has_worked:
            return True
        return self._clock() - self.ended >= pause_s(self._restarts)

    def start_again(self, open_window: OpenWindow) -> None:
        """Start it again."""
        self._has_worked |= self._lived >= WORKS_S
        if self._has_worked:
            self._command = self._again
        self._restarts = 1 if self._lived >= WORKS_S else self._restarts + 1
        self.start(open_window)

    def ask_to_stop(self) -> None:
        """Ask it to save and stop."""
        assert self._popen is not None
        self._stopping = True
        self._popen.terminate()

    def kill(self) -> None:
        """End it at once."""
        self._signal_all(signal.SIGKILL)
        while self.runs():
            time.sleep(0.01)

    def has_stopped_in_order(self) -> bool:
        """Return whether it has ended as one that was asked to stop does."""
        return self.exit_code is not None and has_stopped(self.exit_code)

    def _signal_all(self, number: int) -> None:
        assert self._popen is not None
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, number)

"""Child processes: how they are started, watched, started again after a failure, and stopped.

The start script runs a training this way, here and over ssh, a sweep its start scripts, an evaluation its workers, and
a learner its own inference server.
"""

import math
import multiprocessing
import os
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import IO, Any, TypeVar

import rainbow_iqn_apex
from rainbow_iqn_apex.common.signals import KILLED, blocked, describe_end, has_stopped
from rainbow_iqn_apex.memory.broker.leases import printable
from rainbow_iqn_apex.programs.process import HAS_WORKED

SPAWN = multiprocessing.get_context("spawn")  # a fork would inherit locks of other threads, and could not use a GPU
WRONG_COMMAND = 2
_CANNOT_START = 127  # as a shell's
_STARTS_S = 5.0  # a process that fails sooner would only fail again
_WORKS_S = 60.0  # a process that fails later has worked before
_LONGEST_PAUSE_S = 60.0
_LAST_LINES_S = 10.0  # longer than any reader needs that has not been stopped by Ctrl-S
_PACKAGE_IN = str(Path(rainbow_iqn_apex.__file__).resolve().parents[1])

AnyProcess = TypeVar("AnyProcess", bound="Process")
Clock = Callable[[], float]
OpenWindow = Callable[[str, int], int | None]  # of a process's name and number; returns a descriptor, None: no window


def package_environment() -> dict[str, str]:
    """Return this process's variables, with which Python finds this package from any folder, behind what is named."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), _PACKAGE_IN]))}


@dataclass(frozen=True)
class RestartPolicy:
    """Decides whether and when a process that has ended is started again.

    A process that has worked before may fail at once: what it needs, such as a server, is away for a while.
    """

    final_codes: tuple[int, ...] = (0, WRONG_COMMAND)  # exit codes after which it is not
    most_without_work: float = 5  # restarts of a process that has never worked
    most: float = 20  # restarts since it has last worked: some 15 minutes

    def allows(self, exit_code: int, lived_s: float, restarts: int, *, has_worked: bool) -> bool:
        """Return whether another start makes sense, after so many `restarts` without work in between."""
        if exit_code in self.final_codes:
            return False
        if lived_s >= _WORKS_S:
            return True
        if has_worked:
            return restarts < self.most
        return (exit_code > KILLED or lived_s >= _STARTS_S) and restarts < self.most_without_work

    @staticmethod
    def pause_s(lived_s: float, restarts: int, *, has_worked: bool) -> float:
        """Return how long to wait before the next start: ever longer if the starts so far have been of no use."""
        if lived_s >= _WORKS_S or not has_worked:
            return 0.0
        return min(2.0 ** min(restarts - 1, 10), _LONGEST_PAUSE_S)


class Process(ABC):
    """A child process, which may be started several times."""

    def __init__(self, name: str, policy: RestartPolicy, clock: Clock, blocks: Sequence[signal.Signals]) -> None:
        """Restarts depend on the `clock`; the process is started with the signals that it `blocks`."""
        self.name = name
        self.exit_code: int | None = None  # as a shell's; None while it runs, and before
        self.started = self.ended = 0.0  # by the clock
        self.has_worked = False
        self._restarts = 0  # without work in between
        self._policy = policy
        self._clock = clock
        self._blocks = tuple(blocks)
        self._is_stopping = False

    @abstractmethod
    def _launch(self) -> None:
        """Start it; raises OSError."""

    @abstractmethod
    def _poll(self) -> int | None:
        """Return minus the number of the signal that has ended it, or its exit code; None while it runs."""

    @abstractmethod
    def _signal(self, number: signal.Signals) -> None:
        """Send it a signal."""

    @abstractmethod
    def _clean_up(self) -> None:
        """Clean up after it has ended."""

    def start(self) -> None:
        """Start it, or start it again after it has ended; raises OSError."""
        if self.exit_code is not None:
            has_just_worked = self.ended - self.started >= _WORKS_S
            self.has_worked |= has_just_worked
            self._restarts = 1 if has_just_worked else self._restarts + 1
        self.started = self._clock()
        self.exit_code = None
        try:
            with blocked(*self._blocks):
                self._launch()
        except OSError:
            self.ended = self._clock()
            self.exit_code = _CANNOT_START
            raise

    def runs(self) -> bool:
        """Return whether it runs; when it has ended, what it left behind is cleaned up."""
        if self.exit_code is not None or not self.started:
            return False
        if (code := self._poll()) is None:
            return True
        self.ended = self._clock()
        self.exit_code = code if code >= 0 else KILLED - code
        self._clean_up()
        return False

    @property
    def end(self) -> str:
        """How it has ended, in words."""
        assert self.exit_code is not None
        return f"{self.name} {describe_end(self.exit_code)}"

    def may_restart(self) -> bool:
        """Return whether starting it again makes sense."""
        return self.exit_code is not None and self._policy.allows(
            self.exit_code, self.ended - self.started, self._restarts, has_worked=self.has_worked
        )

    def is_due(self) -> bool:
        """Return whether it has ended so long ago that it may be started again now."""
        pause_s = self._policy.pause_s(self.ended - self.started, self._restarts, has_worked=self.has_worked)
        return self._clock() - self.ended >= pause_s

    def ask_to_stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to save and stop."""
        self._is_stopping = True
        if self.runs():
            self._signal(number)

    def kill(self) -> None:
        """End it at once, if it still runs."""
        if self.runs():
            self._signal(signal.SIGKILL)
        while self.runs():
            time.sleep(0.01)

    def has_stopped_in_order(self) -> bool:
        """Return whether it has ended as one that was asked to stop does."""
        return self.exit_code is not None and has_stopped(self.exit_code)


@dataclass(frozen=True)
class Lines:
    """What becomes of the lines that a process prints."""

    show: Callable[[bytes], None]  # gets each line that no window shows; if it raises OSError, the lines are closed
    takes: Callable[[bytes], bool] = lambda _line: False  # gets each line first; returns whether it need not be shown
    open_window: OpenWindow = lambda _name, _process_id: None
    question: bytes = b""  # the last words in a window of a process that has failed


class Command(Process):
    """A program in a session of its own, so that the terminal's Ctrl-C does not reach it; what it leaves is killed."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        output: Lines | IO[bytes],
        *,
        again: Sequence[str] = (),
        environment: Mapping[str, str] = os.environ,
        pass_fds: Sequence[int] = (),
        policy: RestartPolicy = RestartPolicy(),
        clock: Clock = time.monotonic,
        blocks: Sequence[signal.Signals] = (),
    ) -> None:
        """`again` is the command after it has worked, where that is another one."""
        super().__init__(name, policy, clock, blocks)
        self.command = command
        self._again = again
        self._environment = environment
        self._pass_fds = pass_fds
        self._output = output
        self._lines: _CopiedLines | None = None
        self._stdin: IO[bytes] | None = None
        self._folder: str | None = None
        self._popen: subprocess.Popen[bytes] | None = None

    def start(self, stdin: IO[bytes] | None = None, folder: str | None = None) -> None:
        """Start it, with nothing to read unless that is given, in a folder if it is named; raises OSError."""
        self._stdin = stdin
        self._folder = folder
        super().start()

    def _launch(self) -> None:
        shown = self._output if isinstance(self._output, Lines) else None
        own = {HAS_WORKED: "yes"} if self.has_worked else {}
        self._lines = None
        self._popen = None
        self._popen = subprocess.Popen(
            self._again if self.has_worked and self._again else self.command,
            stdin=self._stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE if isinstance(self._output, Lines) else self._output,
            stderr=subprocess.STDOUT,
            cwd=self._folder,
            env={**self._environment, "PYTHONUNBUFFERED": "1", **own},
            start_new_session=True,
            pass_fds=self._pass_fds,
        )
        if shown:
            assert self._popen.stdout is not None
            window = shown.open_window(self.name, self._popen.pid)
            self._lines = _CopiedLines(self._popen.stdout, self.name, window, shown)

    @property
    def process_id(self) -> int:
        """Its number."""
        assert self._popen is not None
        return self._popen.pid

    @property
    def last_words(self) -> str:
        """The last line that it has printed."""
        return printable(self._lines.last_line.decode(errors="replace")) if self._lines else ""

    def _poll(self) -> int | None:
        return self._popen.poll() if self._popen else None

    def _signal(self, number: signal.Signals) -> None:
        assert self._popen is not None
        if number == signal.SIGKILL:
            self._kill_group()
        else:
            self._popen.send_signal(number)

    def _clean_up(self) -> None:
        self._kill_group()  # its helpers
        if self._lines:
            self._lines.close(f"{self.end}. ".encode() if self.exit_code and not self._is_stopping else b"")

    def _kill_group(self) -> None:
        assert self._popen is not None
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)


class _CopiedLines:
    """Copies the lines of a process, in a thread, to a window (the descriptor of its pipe) or to who shows them."""

    def __init__(self, source: IO[bytes], name: str, window: int | None, shown: Lines) -> None:
        self._source = source
        self._window = window
        self._shown = shown
        self.last_line = b""  # which has something in it
        self._thread = threading.Thread(target=self._copy, name=f"output of {name}", daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        with self._source, suppress(OSError):
            for line in self._source:
                self.last_line = line.strip() or self.last_line
                if self._shown.takes(line):
                    continue
                whole = line.removesuffix(b"\n") + b"\n"
                if self._window is None:
                    self._shown.show(whole)
                else:
                    with suppress(OSError):  # it was closed, and the process goes on
                        write_all(self._window, whole)

    def close(self, failure: bytes) -> None:
        """Copy what is left of a process that has ended; a window gets the failure, if that is what its end was."""
        self._thread.join(_LAST_LINES_S)
        if self._window is not None and not self._thread.is_alive():  # otherwise the thread uses the descriptor
            with suppress(OSError):
                write_all(self._window, failure and failure + self._shown.question)
            os.close(self._window)


def write_all(descriptor: int, data: bytes) -> None:
    """Write to a descriptor, in one go where that is possible, as threads write to a terminal at the same time."""
    while data:
        data = data[os.write(descriptor, data) :]


class Function(Process):
    """A function of ours in a new interpreter. Ctrl-C, which reaches it, too, is for who has started it."""

    def __init__(
        self,
        name: str,
        function: Callable[..., None],
        arguments: tuple[Any, ...],
        *,
        policy: RestartPolicy = RestartPolicy(),
        clock: Clock = time.monotonic,
    ) -> None:
        super().__init__(name, policy, clock, (signal.SIGINT,))
        self._function = function
        self._arguments = arguments
        self._process: SpawnProcess | None = None

    def start(self) -> None:
        """Start it, or start it again after it has ended; raises OSError."""
        resource_tracker.ensure_running()  # otherwise the process's start would start it, which unblocks SIGINT
        super().start()

    def _launch(self) -> None:
        self._process = SPAWN.Process(target=self._function, args=self._arguments)
        self._process.start()

    def _poll(self) -> int | None:
        return self._process.exitcode if self._process else None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        if self._process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def _clean_up(self) -> None:
        assert self._process is not None
        self._process.join()


def stop_all(
    processes: Sequence[AnyProcess], patience_s: float = math.inf, number: signal.Signals = signal.SIGTERM
) -> Iterator[AnyProcess]:
    """Ask all to stop, and yield each when it has ended, or has not for so long."""
    for process in processes:
        process.ask_to_stop(number)
    yield from wait_for_ends(processes, patience_s)


def wait_for_ends(processes: Sequence[AnyProcess], patience_s: float) -> Iterator[AnyProcess]:
    """Yield each process when it has ended, or has not for so long."""
    deadline = time.monotonic() + patience_s
    for process in processes:
        while process.runs() and time.monotonic() < deadline:
            time.sleep(0.05)
        yield process

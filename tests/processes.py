"""Real processes for the tests: started with options, read as they write, ended by signals, and never left behind.

def test_a_stop(processes: Processes) -> None:
    learner = processes.start("launch_learner.py", "--game", "pong")
    learner.wait_for("Learner of run")
    learner.press_ctrl_c()
    assert learner.end() == Ended(0, learner.output, "")
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, Protocol

import psutil

from tests import forked
from tests.deadline import wait_until

ROOT = Path(__file__).parent.parent
FORKED = {  # programs of the project, and modules that run them with something changed
    "launch_learner.py", "launch_actor.py", "test_multiple_seed.py", "saber_report.py", "run_status.py", "dashboard.py",
    "sweep.py", "launch_inference.py",
    "tests.chain.launch", "tests.chaos.launch",
}  # fmt: skip
_POLL_S = 0.02


class Ended(NamedTuple):
    """How a process has ended."""

    code: int
    out: str
    errors: str

    @property
    def text(self) -> str:
        """All of it, line by line."""
        return f"exit code {self.code}\n{self.out}{self.errors}"

    def succeeded(self) -> str:
        """Return what it has printed; fails the test unless it has ended in good order, without an error."""
        assert (self.code, self.errors) == (0, ""), self.text
        return self.out

    def refused(self) -> list[str]:
        """Return the lines with which it refuses its command; fails the test if it has printed anything else."""
        assert (self.code, self.out) == (2, ""), self.text
        return self.errors.splitlines()


class Handle(Protocol):
    """A process as whatever has started it hands it over: `subprocess.Popen` does."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""


class Process:
    """A process that writes to files; without a file of their own its errors stand in its output.

    A test that fails quotes what `everybody` has said, if that is given: the reason may be in another process.
    """

    def __init__(
        self,
        handle: Handle,
        name: str,
        output: Path,
        errors: Path | None = None,
        everybody: Callable[[], str] | None = None,
    ) -> None:
        self.pid = handle.pid
        self.name = name
        self._handle = handle
        self._output = output
        self._errors = errors
        self._everybody = everybody or self.last_words

    @property
    def exit_code(self) -> int | None:
        """Minus a signal's number where one has ended the process, and None while it runs."""
        return self._handle.poll()

    @property
    def output(self) -> str:
        """All that the process has written so far."""
        return _text_of(self._output)

    @property
    def errors(self) -> str:
        return _text_of(self._errors) if self._errors else ""

    def last_words(self) -> str:
        """Name the process and quote its last words."""
        return f"--- {self.name}, exit code {self.exit_code}:\n{self.output[-2000:]}{self.errors[-2000:]}"

    # --- wait ---

    def wait_until(self, true: Callable[[], object], what: str, seconds: float = 60) -> None:
        """Wait until a condition is true; a process that has ended before that fails the test."""

        def is_so() -> bool:
            ended = self.exit_code is not None  # looked at first: what the process did before its end counts
            if true():
                return True
            assert not ended, f"{what} never came\n{self._everybody()}"
            return False

        wait_until(is_so, lambda: f"{what}\n{self._everybody()}", seconds, _POLL_S)

    def wait_for(self, text: str, times: int = 1, seconds: float = 60) -> None:
        """Wait until a text has been written so many times."""
        self.wait_until(lambda: self.output.count(text) >= times, repr(text), seconds)

    def finish(self, seconds: float = 60) -> int:
        """Wait for the end and return the exit code."""
        wait_until(
            lambda: self.exit_code is not None, lambda: f"the end of {self.name}\n{self._everybody()}", seconds, _POLL_S
        )
        assert self.exit_code is not None
        return self.exit_code

    def end(self, seconds: float = 60) -> Ended:
        """Wait for the end and return all that there is."""
        return Ended(self.finish(seconds), self.output, self.errors)

    # --- signals ---

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process alone; nothing happens if it has ended."""
        if self.exit_code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def send_to_group(self, number: signal.Signals) -> None:
        """Send a signal to the process and the helpers it has started, as a terminal and a supervisor do."""
        os.killpg(self.pid, number)

    def press_ctrl_c(self) -> None:
        self.send_to_group(signal.SIGINT)

    def terminate(self) -> None:
        self.send(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the process as `kill -9` does, and see it end; the helpers it has started live on."""
        self.send(signal.SIGKILL)
        self.finish()

    def kill_group(self) -> None:
        """Kill the process if it still runs, and every helper it has started, also if it has ended."""
        if self.exit_code is None or not psutil.pid_exists(self.pid):  # else the number is somebody else's by now
            with suppress(ProcessLookupError):  # nobody of the group is left
                self.send_to_group(signal.SIGKILL)
        self.finish()

    def freeze(self, seconds: float) -> None:
        """Stop the process for some time."""
        self.send(signal.SIGSTOP)
        time.sleep(seconds)
        self.send(signal.SIGCONT)

    def children(self) -> list[psutil.Process]:
        """List the helpers that the process has started, and theirs."""
        found: list[psutil.Process] = psutil.Process(self.pid).children(recursive=True)
        return found


class Processes:
    """Starts processes, each in a group of its own, and kills at the end of its block what is left of the groups."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="processes")
        self._all: list[Process] = []

    def start(
        self,
        *words: object,
        program: str = sys.executable,
        environment: dict[str, str] | None = None,
        cwd: Path = ROOT,
        output: Path | None = None,
        together: bool = False,
        fresh: bool = False,
    ) -> Process:
        """Start a Python program of the project, or another program.

        What it writes is appended to `output`, or to a new file of its own; `together` puts its errors there as well.
        A program of the project is forked, see `tests.forked`; `fresh` gives it an interpreter of its own.
        """
        file = Path(self._folder.name, str(len(self._all)))
        out, errors = output or file.with_suffix(".out"), None if together else file.with_suffix(".errors")
        command = list(map(str, words))
        place = forked.Place(cwd, clean_environment() if environment is None else environment, out, errors or out)
        can_fork = program == sys.executable and cwd == ROOT and bool(FORKED.intersection(command[:2])) and not fresh
        handle = forked.start(command, place) if can_fork else _start([program, *command], place)
        self._all.append(Process(handle, " ".join([program, *command])[:300], out, errors, self.last_words))
        return self._all[-1]

    def living(self) -> list[Process]:
        """List those that have not ended."""
        return [process for process in self._all if process.exit_code is None]

    def last_words(self) -> str:
        """Quote the last words of everybody, also of those who have ended."""
        return "\n".join(process.last_words() for process in self._all)

    def close(self) -> None:
        for process in self._all:
            process.kill_group()
        self._all.clear()
        self._folder.cleanup()

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _start(command: list[str], place: forked.Place) -> Handle:
    with place.output.open("ab") as stdout, place.errors.open("ab") as stderr:
        return subprocess.Popen(
            command,
            cwd=place.folder,
            env=place.environment,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            process_group=0,
        )


def run(
    *words: object,
    seconds: float = 60,
    program: str = sys.executable,
    environment: dict[str, str] | None = None,
    cwd: Path = ROOT,
    together: bool = False,
    fresh: bool = False,
) -> Ended:
    """Run a program that ends by itself, where a test needs no other process."""
    with Processes() as processes:
        process = processes.start(
            *words, program=program, environment=environment, cwd=cwd, together=together, fresh=fresh
        )
        return process.end(seconds)


def wait_for_ends(processes: list[psutil.Process], seconds: float = 60) -> None:
    """Wait until none of these runs, whoever has started them."""
    wait_until(lambda: all(map(is_gone, processes)), f"the end of {processes}", seconds)


def is_gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE  # nobody may reap an orphan
    except psutil.NoSuchProcess:
        return True


def clean_environment() -> dict[str, str]:
    """Return this process's variables without those of a display, and of Python's buffers, which change what is seen.

    Unbuffered, Python writes a line's end apart, and that of another line may come before it.
    """
    left_out = ("DISPLAY", "WAYLAND_DISPLAY", "PYTHONUNBUFFERED")
    return {name: value for name, value in os.environ.items() if name not in left_out}


def _text_of(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.exists() else ""  # the last letter may be half written

"""Processes that are measured: a Redis server of one's own, programs that write to a file, and the start script."""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from rainbow_iqn_apex.common.checkout import ROOT
from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.programs.redis_program import CONFIGURATION, find_program, settings_of

_TICKS = os.sysconf("SC_CLK_TCK")
_LONGEST_WAIT_S = 900.0  # for a program's next line
_LAST_LINES = 20  # of a program that has failed
_INTERVAL = r"log_interval for learner \(([\d.]+) sec\)"


class RedisServer:
    """Runs with the project's settings, a free port and a folder that is removed; a context manager."""

    def __init__(self) -> None:
        self.port = free_port()

    def __enter__(self) -> "RedisServer":
        self._folder = tempfile.TemporaryDirectory(prefix="benchmark_redis_")
        folder = Path(self._folder.name)
        settings = [*settings_of(self.port, folder), "--logfile", str(folder / "redis.log")]
        with CONFIGURATION.open("rb") as configuration:
            self.process = subprocess.Popen([find_program().path, "-", *settings], stdin=configuration)
        while not self._answers():
            if self.process.poll() is not None:
                raise RunError(f"redis-server ended with {self.process.returncode}")
            time.sleep(0.02)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()
        self._folder.cleanup()

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class Program:
    """Runs a program of the project, with its output in a file; ended with the stack."""

    def __init__(self, stack: ExitStack, words: Sequence[str], output: Path) -> None:
        self._output = output
        with output.open("wb") as file:
            command = [sys.executable, "-u", *words]
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)
        self.pid = self._process.pid
        stack.callback(self._process.wait)
        stack.callback(self._process.terminate)

    def text(self) -> str:
        """Return the output so far."""
        return self._output.read_text()

    def intervals(self) -> list[float]:
        """Return the seconds of each log interval of a learner so far."""
        return [float(text) for text in re.findall(_INTERVAL, self.text())]

    def wait_for_intervals(self, count: int) -> None:
        """Wait until a learner has written so many intervals; raises RunError if it does not get so far."""
        self.wait_until(lambda: len(self.intervals()) >= count)

    def wait_until(self, is_over: Callable[[], bool]) -> None:
        """Wait for a condition; raises RunError if the program ends before, or takes too long."""
        deadline = time.monotonic() + _LONGEST_WAIT_S
        while not is_over():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RunError(f"the program did not get so far; its output was:\n{self.text()}")
            time.sleep(0.01)


class WholeSystem(NamedTuple):
    """Holds a Redis server, a learner and its actors, which run."""

    folder: Path  # of their output and results
    redis: int  # process id
    learner: Program
    actors: list[Program]


@contextmanager
def run_system(options: Sequence[str], actors: int, launcher: Sequence[str] = ()) -> Iterator[WholeSystem]:
    """Start all with these options, and end them; the learner's command begins with `launcher`, such as torchrun's."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark_")))
        server = stack.enter_context(RedisServer())
        given = [*options, "--nb-actor", str(actors), "--disable-cuda"]
        given += ["--port-redis", str(server.port), "--path-to-results", str(folder)]
        learner = Program(stack, [*launcher, "launch_learner.py", *given], folder / "learner.txt")
        started = [
            Program(stack, ["launch_actor.py", "--id-actor", str(actor), *given], folder / f"actor{actor}.txt")
            for actor in range(actors)
        ]
        yield WholeSystem(folder, server.process.pid, learner, started)


class Passed(NamedTuple):
    """Holds what a line of the learner's log reports."""

    seconds: float  # since the start
    steps: int  # agent steps


def watch_start_script(options: Sequence[str], is_over: Callable[[list[Passed]], bool]) -> list[Passed]:
    """Run the start script until it ends or enough lines of the learner's log have passed.

    Raises RunError, with the last lines, if it fails.
    """
    command = ["bash", "start_learning_atari.sh", *options]
    begun = time.monotonic()
    lines: list[str] = []
    passed: list[Passed] = []
    stopping = False
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if stopping or not (match := re.match(r"\[learner\] \[.*\] T = (\d+) / ", line)):
                continue
            passed.append(Passed(time.monotonic() - begun, int(match[1])))
            if stopping := is_over(passed):
                process.terminate()
    has_ended = stopping or "Finished at T" in "".join(lines)
    if not has_ended or process.returncode:
        last = "".join(lines[-_LAST_LINES:])
        raise RunError(f"{' '.join(command)} has ended with exit code {process.returncode}:\n{last}")
    return passed


def main_thread_s(pid: int) -> float:
    """Return the processor seconds of a process's main thread so far (Linux)."""
    fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def free_port() -> int:
    """Return a port that is not in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

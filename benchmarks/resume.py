"""How long a learner that resumes with a full replay takes until its first update.

    python -m benchmarks.resume --repeats 3

A learner is started as its users start it, one actor's log is filled with random play, and the learner is stopped with
the replay full. Then it is started again: it loads its snapshot, reads the log, and has its replay back. A million
transitions need 8 GB of memory for the replay; where there is less, there are fewer.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import IO

from benchmarks.chunks import SPEC, random_chunks
from benchmarks.harness import Comparison, Rate, run
from benchmarks.redis_server import RedisServer
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.connection import connect
from rainbow_iqn_apex.memory.broker.run_status import read_run
from rainbow_iqn_apex.memory.messages import encode_message
from rainbow_iqn_apex.programs.memory_needs import available_memory
from rainbow_iqn_apex.saber.results.run_record import ROOT

_TRANSITIONS = 1_000_000
_SHARE = 0.7  # of the memory there is, for the replay
_GAME = "space_invaders"
_CHUNKS = 200  # different ones
_COMMIT = 5  # chunks
_STATE = bytes(40_000)
_PATIENCE_S = 900.0
_PHASES = {  # by the line that ends each
    "imports": "Budget:",
    "replay made, snapshot read": "Resuming from",
    "priorities": "Learner of run",
    "log read, first update": "T = ",
}
_LIMIT = "limit: writing so much new memory once"
_TICKS = os.sysconf("SC_CLK_TCK")


def measure(args: argparse.Namespace) -> list[Comparison]:
    """Seconds of each phase and of all, and of processors in all: others may use them, too."""
    room = int(available_memory() * _SHARE) // _frames(1)
    chunks = min(room, (2_000 if args.quick else _TRANSITIONS) // SPEC.period)
    with RedisServer() as server, tempfile.TemporaryDirectory(prefix="benchmark_resume_") as folder:
        options = f"--game {_GAME} --disable-cuda --learn-start {chunks * SPEC.period} --nb-actor 1 --force --seed 1"
        options += f" --memory-capacity {chunks * SPEC.period} --synchronize-actors-with-learner False --queue-size 1"
        options += f" --T-max 100000000 --log-interval 4 --port-redis {server.port} --path-to-results {folder}"
        with _learner(options, Path(folder)) as learner:
            size = _fill(server.port, chunks, lambda: _check(learner))
            _until(learner, Path(folder), "T = ")
            _stop(learner)
        repeats = range(1 if args.quick else args.repeats)
        runs = [_resume(options, Path(folder)) | {_LIMIT: _first_touch(_frames(chunks))} for _ in repeats]
    phases = {name: tuple(times[name] for times in runs) for name in [*_PHASES, "all", "processor", _LIMIT]}
    rates = [Rate(name, "s", seconds, (1.0,) * len(seconds)) for name, seconds in phases.items()]
    log = rates[len(_PHASES) - 1].median
    print(
        f"{chunks * SPEC.period:,} transitions, {size / 1e6:.0f} MB in Redis, {_frames(chunks) / 1e9:.1f} GB of frames:"
    )
    print(f"{chunks * SPEC.period / log:,.0f} transitions/s, {size / 1e6 / log:.0f} MB/s of the log\n")
    return [Comparison("resume", tuple(rates), {})]


def _frames(chunks: int) -> int:
    return chunks * SPEC.window * 84 * 84


def _learner(options: str, folder: Path) -> subprocess.Popen[bytes]:
    said: IO[bytes]
    with _output(folder).open("wb") as said:
        command = [sys.executable, "-u", "launch_learner.py", *options.split()]
        return subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=subprocess.STDOUT)


def _output(folder: Path) -> Path:
    return folder / "learner.txt"


def _fill(port: int, chunks: int, check: Callable[[], None]) -> int:
    """Append so many chunks as actor 0; returns their bytes."""
    different = random_chunks(_GAME, min(chunks, _CHUNKS))
    with closing(connect("127.0.0.1", port)) as client:
        while not (record := read_run(client, _GAME)) or record.status != "running":
            check()
            time.sleep(0.1)
        with ActorClient(client, _GAME, record.run_id, 0, threading.Event()) as link:
            for first in range(0, chunks, _COMMIT):
                numbers = range(first, min(first + _COMMIT, chunks))
                link.commit([different[i % len(different)] for i in numbers], _STATE)
    sizes = [len(encode_message(chunk)) for chunk in different]
    return sum(sizes[i % len(sizes)] for i in range(chunks))


def _resume(options: str, folder: Path) -> dict[str, float]:
    """Seconds by phase."""
    start = before = time.monotonic()
    times: dict[str, float] = {}
    with _learner(options, folder) as learner:
        for phase, line in _PHASES.items():
            _until(learner, folder, line)
            times[phase] = time.monotonic() - before
            before = time.monotonic()
        processor = _processor_s(learner.pid)
        _stop(learner)
    return times | {"all": before - start, "processor": processor}


def _first_touch(size: int) -> float:
    """Seconds that the operating system takes to give a new process so many bytes, written by one thread."""
    program = (
        "import sys, time, numpy; memory = numpy.empty(int(sys.argv[1]), 'u1'); t = time.monotonic(); memory.fill(1)"
    )
    command = [sys.executable, "-c", f"{program}; print(time.monotonic() - t)", str(size)]
    return float(subprocess.run(command, check=True, capture_output=True).stdout)


def _processor_s(pid: int) -> float:
    """Processor seconds of a process so far, in all its threads (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _until(learner: subprocess.Popen[bytes], folder: Path, line: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not re.search(rf"^(\[.*\] )?{line}", _output(folder).read_text(), re.MULTILINE):
        if time.monotonic() > deadline or learner.poll() is not None:
            raise RuntimeError(f"the learner did not get so far; it said:\n{_output(folder).read_text()}")
        time.sleep(0.01)


def _check(learner: subprocess.Popen[bytes]) -> None:
    if learner.poll() is not None:
        raise RuntimeError(f"the learner ended with {learner.returncode}")


def _stop(learner: subprocess.Popen[bytes]) -> None:
    learner.terminate()
    if learner.wait(_PATIENCE_S) != 0:
        raise RuntimeError(f"the learner ended with {learner.returncode}")


if __name__ == "__main__":
    run(measure, "A learner that resumes with a full replay.")

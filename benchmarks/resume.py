"""How long a learner that resumes with a full replay takes until its first update.

A learner is started as its users start it, one actor's log is filled with random play, and the learner is stopped with
the replay full. Then it is started again: it loads its snapshot, reads the log, and has its replay back. A million
transitions need 8 GB of memory for the replay; where there is less, there are fewer.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, closing
from pathlib import Path

from benchmarks.chunks import SPEC, random_chunks
from benchmarks.harness import Comparison, Rate
from benchmarks.processes import Program, RedisServer, processor_s
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.connection import connect
from rainbow_iqn_apex.memory.broker.run_status import read_run
from rainbow_iqn_apex.memory.messages import encode_message
from rainbow_iqn_apex.programs.memory_needs import available_memory

_TRANSITIONS = 1_000_000
_SHARE = 0.7  # of the memory there is, for the replay
_GAME = "space_invaders"
_CHUNKS = 200  # different ones
_COMMIT = 5  # chunks
_STATE = bytes(40_000)
_PHASES = {  # by the line that ends each
    "imports": "Budget:",
    "replay made, snapshot read": "Resuming from",
    "priorities": "Learner of run",
    "log read, first update": "T = ",
}
_LIMIT = "limit: writing so much new memory once"


def measure(args: argparse.Namespace) -> list[Comparison]:
    """Measure the seconds of each phase and of all, and of processors in all: others may use them, too."""
    room = int(available_memory() * _SHARE) // _frames(1)
    chunks = min(room, (2_000 if args.quick else _TRANSITIONS) // SPEC.period)
    with RedisServer() as server, tempfile.TemporaryDirectory(prefix="benchmark_resume_") as folder:
        options = f"--game {_GAME} --disable-cuda --learn-start {chunks * SPEC.period} --nb-actor 1 --force --seed 1"
        options += f" --memory-capacity {chunks * SPEC.period} --synchronize-actors-with-learner False --queue-size 1"
        options += f" --T-max 100000000 --log-interval 4 --port-redis {server.port} --path-to-results {folder}"
        with ExitStack() as stack:
            learner = _learner(stack, options, Path(folder))
            size = _fill(server.port, chunks, learner)
            learner.wait_for_line("T = ")
            learner.stop()
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


def _learner(stack: ExitStack, options: str, folder: Path) -> Program:
    return Program(stack, ["launch_learner.py", *options.split()], folder / "learner.txt")


def _fill(port: int, chunks: int, learner: Program) -> int:
    """Append so many chunks as actor 0; returns their bytes."""
    different = random_chunks(_GAME, min(chunks, _CHUNKS))
    with closing(connect("127.0.0.1", port)) as client:
        learner.wait_until(lambda: bool((record := read_run(client, _GAME)) and record.status == "running"))
        record = read_run(client, _GAME)
        assert record
        with ActorClient(client, _GAME, record.run_id, 0, threading.Event()) as actor:
            for first in range(0, chunks, _COMMIT):
                numbers = range(first, min(first + _COMMIT, chunks))
                actor.commit([different[i % len(different)] for i in numbers], _STATE)
    sizes = [len(encode_message(chunk)) for chunk in different]
    return sum(sizes[i % len(sizes)] for i in range(chunks))


def _resume(options: str, folder: Path) -> dict[str, float]:
    """Return the seconds by phase."""
    start = before = time.monotonic()
    times: dict[str, float] = {}
    with ExitStack() as stack:
        learner = _learner(stack, options, folder)
        for phase, line in _PHASES.items():
            learner.wait_for_line(line)
            times[phase] = time.monotonic() - before
            before = time.monotonic()
        processor = processor_s(learner.pid)
        learner.stop()
    return times | {"all": before - start, "processor": processor}


def _first_touch(size: int) -> float:
    """Return the seconds that the operating system takes to give a new process so many bytes, written by one thread."""
    program = (
        "import sys, time, numpy; memory = numpy.empty(int(sys.argv[1]), 'u1'); t = time.monotonic(); memory.fill(1)"
    )
    command = [sys.executable, "-c", f"{program}; print(time.monotonic() - t)", str(size)]
    return float(subprocess.run(command, check=True, capture_output=True).stdout)

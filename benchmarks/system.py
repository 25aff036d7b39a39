"""The whole system as its users start it: agent steps a second, and how idle the learner is.

    python -m benchmarks.system

Speeds are what the learner's own log says ("Time between 2 log_interval"), interval by interval. Idle is the part of
the time in which the learner's main thread did not compute.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Comparison, Rate, run
from benchmarks.redis_server import RedisServer
from rainbow_iqn_apex.saber.results.run_record import ROOT

_PATIENCE_S = 240.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Configuration:
    """Settings, and what was wanted of them."""

    options: str
    interval: int  # agent steps of a measured interval: some seconds
    wanted: float  # agent steps a second
    actors: int = 1


# The system that this one re-creates made 7.3 to 8.6 steps a second with the first; wanted is four times as many.
CONFIGURATIONS = {
    "default settings": Configuration("--learn-start 2000 --memory-capacity 100000", 200, 4 * 8.6),
    "--preset cpu, an update per 2 steps": Configuration("--preset cpu --replay-frequency 2", 1000, 200),
    "--preset cpu": Configuration("--preset cpu", 1000, 200),
}
_QUICK = {"--preset cpu": Configuration("--preset cpu --learn-start 400", 400, 0)}


def measure(args: argparse.Namespace) -> list[Comparison]:
    """One comparison a configuration, with one rate."""
    return [_measure(name, it, args.repeats) for name, it in (_QUICK if args.quick else CONFIGURATIONS).items()]


def _measure(name: str, configuration: Configuration, repeats: int) -> Comparison:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark_system_")))
        port = stack.enter_context(RedisServer()).port
        options = [*configuration.options.split(), "--game", "space_invaders", "--disable-cuda"]
        options += ["--port-redis", str(port), "--path-to-results", str(folder)]
        options += ["--log-interval", str(configuration.interval), "--nb-actor", str(configuration.actors)]
        said = folder / "learner.txt"
        learner = start(stack, ["launch_learner.py", *options], said)
        for actor in range(configuration.actors):
            start(stack, ["launch_actor.py", "--id-actor", str(actor), *options], folder / f"actor{actor}.txt")
        wait_for(learner, said, 1)  # the first interval holds the start
        before, busy = time.monotonic(), _main_thread_s(learner.pid)
        wait_for(learner, said, 1 + repeats)
        idle = 1 - (_main_thread_s(learner.pid) - busy) / (time.monotonic() - before)
        seconds = intervals(said)[1 : 1 + repeats]
    print(f"{name}: the learner was idle for {idle:.1%} of the time; wanted {configuration.wanted:.0f} steps/s\n")
    rates = tuple(configuration.interval / second for second in seconds)
    return Comparison(f"system, {name}", (Rate("agent steps", "steps/s", rates, (1.0,) * len(rates)),), {})


def start(stack: ExitStack, words: list[str], output: Path, root: Path = ROOT) -> subprocess.Popen[bytes]:
    """A program of the checkout `root` with its output in a file; ended with the stack."""
    with output.open("wb") as file:
        process = subprocess.Popen([sys.executable, *words], cwd=root, stdout=file, stderr=subprocess.STDOUT)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process


def intervals(said: Path) -> list[float]:
    """Seconds of each log interval of the learner."""
    return [float(text) for text in re.findall(r"log_interval for learner \(([\d.]+) sec\)", said.read_text())]


def wait_for(learner: subprocess.Popen[bytes], said: Path, count: int) -> None:
    """Wait until a learner has written so many intervals; raises RuntimeError if it does not get so far."""
    deadline = time.monotonic() + _PATIENCE_S
    while len(intervals(said)) < count:
        if learner.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the learner did not get so far; it said:\n{said.read_text()}")
        time.sleep(0.05)


def _main_thread_s(pid: int) -> float:
    """Processor seconds of a process's main thread (Linux)."""
    fields = Path(f"/proc/{pid}/task/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    run(measure, "Learner, actor and Redis together.")

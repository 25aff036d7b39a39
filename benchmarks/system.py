"""The whole system as its users start it: agent steps a second, and how idle the learner is.

Speeds are those of the learner's own log ("Time between 2 log_interval"), interval by interval. Idle is the part of
the time in which the learner's main thread did not compute.
"""

import argparse
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Comparison, Rate
from benchmarks.processes import Program, RedisServer, main_thread_s


@dataclass(frozen=True)
class Configuration:
    """Holds settings, and what was wanted of them."""

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
    """Make one comparison a configuration, with one rate."""
    return [_measure(name, it, args.repeats) for name, it in (_QUICK if args.quick else CONFIGURATIONS).items()]


def _measure(name: str, configuration: Configuration, repeats: int) -> Comparison:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark_system_")))
        port = stack.enter_context(RedisServer()).port
        options = [*configuration.options.split(), "--game", "space_invaders", "--disable-cuda"]
        options += ["--port-redis", str(port), "--path-to-results", str(folder)]
        options += ["--log-interval", str(configuration.interval), "--nb-actor", str(configuration.actors)]
        learner = Program(stack, ["launch_learner.py", *options], folder / "learner.txt")
        for actor in range(configuration.actors):
            Program(stack, ["launch_actor.py", "--id-actor", str(actor), *options], folder / f"actor{actor}.txt")
        learner.wait_for_intervals(1)  # the first interval holds the start
        before, busy = time.monotonic(), main_thread_s(learner.pid)
        learner.wait_for_intervals(1 + repeats)
        idle = 1 - (main_thread_s(learner.pid) - busy) / (time.monotonic() - before)
        seconds = learner.intervals()[1 : 1 + repeats]
    print(f"{name}: the learner was idle for {idle:.1%} of the time; wanted {configuration.wanted:.0f} steps/s\n")
    rates = tuple(configuration.interval / second for second in seconds)
    return Comparison(f"system, {name}", (Rate("agent steps", "steps/s", rates, (1.0,) * len(rates)),), {})

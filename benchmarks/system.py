"""The whole system as its users start it: agent steps a second, and how idle the learner is.

Speeds are those of the learner's own log ("Time between 2 log_interval"), interval by interval. Idle is the part of
the time in which the learner's main thread did not compute.
"""

import argparse
import time
from dataclasses import dataclass

from benchmarks.harness import Comparison, beside_first
from benchmarks.processes import main_thread_s, run_system


@dataclass(frozen=True)
class Configuration:
    """Holds settings, and what was wanted of them."""

    options: str
    interval: int  # agent steps of a measured interval: some seconds
    wanted: float  # agent steps a second


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
    options = f"{configuration.options} --game space_invaders --log-interval {configuration.interval}"
    with run_system(options.split(), 1) as system:
        learner = system.learner
        learner.wait_for_intervals(1)  # the first interval holds the start
        before = time.monotonic()
        busy = main_thread_s(learner.pid)
        learner.wait_for_intervals(1 + repeats)
        idle = 1 - (main_thread_s(learner.pid) - busy) / (time.monotonic() - before)
        seconds = learner.intervals()[1 : 1 + repeats]
    print(f"{name}: the learner was idle for {idle:.1%} of the time; wanted {configuration.wanted:.0f} steps/s\n")
    rates = [configuration.interval / second for second in seconds]
    return beside_first(f"system, {name}", "steps/s", {"agent steps": rates})

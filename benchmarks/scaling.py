"""What many actors cost Redis, the learner and themselves: measured causes, real runs, and a simulation of more.

`costs.py` measures what each cause takes of each process. Synthetic actors, which append chunks of random play that
they have made before, then run beside the simulation of the same: at fixed rates, so that none waits, and as fast as
they can. What the simulation says of the processor time of each process, at the rate that was seen, is compared with
what was seen. Last come simulated runs of up to 10 000 actors.
"""

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.chunks import SPEC
from benchmarks.costs import measure_costs
from benchmarks.harness import add_json
from benchmarks.processes import processor_s
from benchmarks.simulation import Costs, Load, Setting, simulate
from benchmarks.sizes import tables
from benchmarks.transport import System, Writers, await_writers, empty_replay, running, take_in
from rainbow_iqn_apex.memory.replay import Replay

_WINDOWS, _WINDOW_S = 5, 4.0  # the median counts: another tenant of the machine may come and go
_ANNOUNCED_S = 1.0
_FREE = [Writers(number) for number in (1, 2, 4, 8)]
# Actors, chunks of a commit, chunks a second of each.
_PACES = (
    (1, 1, 200), (1, 8, 400), (4, 2, 50), (8, 1, 25), (8, 4, 50), (16, 6, 24), (32, 1, 3), (32, 6, 12), (64, 1, 2),
    (64, 6, 6),
)  # fmt: skip
_PACED = [Writers(number, chunks, rate) for number, chunks, rate in _PACES]


@dataclass(frozen=True)
class Point:
    """Holds one measurement, and what the simulation says of it."""

    actors: int
    chunks_each: int  # of a commit
    transitions: float  # a second, into the replay
    redis: float  # processor seconds a second
    learner: float
    actor: float  # all actors together
    load_average: float  # of the machine, over a minute
    simulated: Load

    @property
    def errors(self) -> dict[str, float]:
        """Return how far the simulation is from what was seen, as shares of it."""
        found, seen = self.simulated, self.transitions
        pairs = {
            "transitions": (found.taken * SPEC.period, seen),
            "redis": (found.redis, self.redis),
            "learner": (found.learner, self.learner),
            "actors": (found.actors, self.actor),
        }
        return {name: simulated / measured - 1 for name, (simulated, measured) in pairs.items()}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--quick", action="store_true", help="few actors, to see that it runs")
    add_json(parser)


def measure(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Measure and print."""
    loads = [os.getloadavg()[0]]
    costs = measure_costs(seconds=0.5, repeats=1) if args.quick else measure_costs()
    loads.append(os.getloadavg()[0])
    print(described(costs), end="\n\n", flush=True)
    most = 2 if args.quick else 64
    groups = [[writers for writers in group if writers.number <= most] for group in (_PACED, _FREE)]
    points = [point(costs, writers) for group in groups for writers in group]
    sizes = tables(costs)
    yield {
        "costs": asdict(costs),
        "load_average_of_costs": loads,  # before and after
        "points": [asdict(point) | {"errors": point.errors} for point in points],
        "sizes": sizes,
    }


def described(costs: Costs) -> str:
    """Write the costs as a table of microseconds."""
    lines = ["| cause, us | Redis | reader | loop | actor |", "|---|---|---|---|---|"]
    for cause, each in asdict(costs).items():
        if isinstance(each, tuple):
            lines.append(f"| {cause} | {' | '.join(f'{1e6 * seconds:.3g}' for seconds in each)} |")
    return "\n".join(lines)


def point(costs: Costs, writers: Writers) -> Point:
    """Run these writers, and simulate them; print both."""
    replay, is_free = empty_replay(200), writers.rate == float("inf")
    announced_s = 0.02 if is_free else _ANNOUNCED_S
    with running(writers) as system:
        await_writers(replay, system)
        take_in(replay, system, 1.0, announced_s)
        windows = [_window(replay, system, announced_s) for _ in range(_WINDOWS)]
    rate, redis, learner, actor = (statistics.median(column) for column in zip(*windows, strict=True))
    interval_s = writers.number * writers.chunks / max(rate, 1e-9)  # as it was: the machine may be busy
    setting = Setting(
        writers.number, writers.chunks, 0.0 if is_free else interval_s, announcements=1 / announced_s, reports=False,
        cores=len(os.sched_getaffinity(0)),
    )  # fmt: skip
    found = Point(
        writers.number, writers.chunks, rate * SPEC.period, redis, learner, actor, os.getloadavg()[0],
        simulate(costs, setting),
    )  # fmt: skip
    speed = f"{found.transitions:,.0f} transitions/s at a load of {found.load_average:.1f}"
    use = f"Redis {redis:.1%}, learner {learner:.1%}, actors {actor:.1%}"
    errors = ", ".join(f"{name} {error:+.0%}" for name, error in found.errors.items())
    print(f"{found.actors} actors, {found.chunks_each} chunks a commit: {speed}; processor: {use}", flush=True)
    print(f"    simulated beside that: {errors}", flush=True)
    return found


def _window(replay: Replay, system: System, announced_s: float) -> tuple[float, ...]:
    """Return chunks and processor seconds of Redis, learner and actors, a second."""
    before, chunks, start = _processor_s(system), replay.inserted, time.monotonic()
    take_in(replay, system, _WINDOW_S, announced_s)
    took = time.monotonic() - start
    spent = (now - then for now, then in zip(_processor_s(system), before, strict=True))
    return ((replay.inserted - chunks) / took, *(seconds / took for seconds in spent))


def _processor_s(system: System) -> tuple[float, float, float]:
    return processor_s(system.redis), time.process_time(), sum(map(processor_s, system.writers))

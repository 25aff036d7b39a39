"""Whether memory and file descriptors stay flat: a run at a high rate for an hour, looked at every few seconds.

Redis, a learner and two actors without lockstep; the replay is small, so that it is soon full and turns over all the
time. The slope is that of a line through the second half of the time, when everything has been allocated.
"""

import argparse
import csv
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import add_json
from benchmarks.processes import run_system

_OPTIONS = (
    "--preset cpu --game pong --hidden-size 32 --synchronize-actors-with-learner False --replay-frequency 32 "
    "--learn-start 2000 --memory-capacity 20000 --log-interval 100000"
)
_PERIOD_S = 5.0

Sample = tuple[float, int, int]  # seconds since the start, resident bytes, open file descriptors


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--minutes", type=float, default=60.0, help="length [%(default)s]")
    add_json(parser)


def measure(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Let the run go on, look at it, and print what was seen."""
    seen, rows = _soak(60 * args.minutes)
    found = {process: _summary(samples) for process, samples in seen.items()}
    for process, numbers in found.items():
        print(f"{process}: " + ", ".join(f"{name} {value:,.4g}" for name, value in numbers.items()))
    print(f"{rows:,.0f} transitions a second")
    each_minute = {
        process: [round(resident / 1e6, 1) for _, resident, _ in samples[::12]] for process, samples in seen.items()
    }
    yield {"minutes": args.minutes, "transitions": rows, "processes": found, "MB each minute": each_minute}


def _soak(seconds: float) -> tuple[Mapping[str, list[Sample]], float]:
    with run_system(_OPTIONS.split(), 2) as system:
        pids = {"Redis": system.redis, "learner": system.learner.pid}
        pids |= {f"actor {number}": actor.pid for number, actor in enumerate(system.actors)}
        seen: dict[str, list[Sample]] = {process: [] for process in pids}
        begun = time.monotonic()
        while (now := time.monotonic() - begun) < seconds:
            for process, pid in pids.items():
                seen[process].append((now, _resident_bytes(pid), len(list(Path(f"/proc/{pid}/fd").iterdir()))))
            time.sleep(_PERIOD_S)
        with (system.folder / "pong.csv").open() as file:
            steps = max(float(episode["T_actors"]) for episode in csv.DictReader(file))
        print(system.learner.text()[-600:])
    return seen, steps / seconds


def _resident_bytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) * 1024


def _summary(samples: list[Sample]) -> dict[str, float]:
    late = np.array(samples[len(samples) // 2 :])
    hours = late[:, 0] / 3600
    megabytes = late[:, 1] / 1e6
    descriptors = late[:, 2]
    return {
        "MB": float(np.median(megabytes)),
        "MB an hour": float(np.polyfit(hours, megabytes, 1)[0]),
        "most MB": max(resident for _, resident, _ in samples) / 1e6,
        "descriptors": float(np.median(descriptors)),
        "descriptors an hour": float(np.polyfit(hours, descriptors, 1)[0]),
        "most descriptors": float(max(count for _, _, count in samples)),
    }

"""What a second learner gives that shares the first one's batch: updates a second, and agent steps of a whole run.

All is Rainbow-IQN's with `--preset cpu` and pictures as Atari has them, a learner in one thread. Learners alone make
updates from a full replay, as fast as they can. A whole run is in lockstep, with two actors that need the cores, too.
"""

import argparse
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from benchmarks.harness import Comparison, beside_first
from benchmarks.processes import Program, run_system
from benchmarks.workloads import ATARI, CPU, update_work
from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.learner.budget import share_of
from rainbow_iqn_apex.programs.learner.world import RoundState, join
from rainbow_iqn_apex.programs.process import prepare_processor

_LEARNERS = (1, 2)
_ACTORS = 2
_SETTINGS = f"--preset cpu --game space_invaders --disable-cuda --nb-actor {_ACTORS}".split()
_CHUNKS = 500  # of each learner's replay
_WARM_UP = 20  # updates
_FOUND = r"([\d.]+) updates/s, ([\d.]+) ms each"


def measure(args: argparse.Namespace) -> Iterator[Comparison | dict[str, Any]]:
    """Compare one learner with two, in turn."""
    updates, steps = (20, 400) if args.quick else (1000, 2500)
    busy_ms: dict[int, list[float]] = {count: [] for count in _LEARNERS}

    def alone(count: int) -> float:
        rate, each_ms = _alone(count, updates)
        busy_ms[count].append(each_ms)
        return rate

    yield _compare("learners alone", "updates/s", alone, args.repeats)
    for count, found in busy_ms.items():
        each_ms = statistics.median(found)
        print(f"learners: {count}; an update takes {each_ms:.1f} ms of each one's processor time\n")
        yield {f"ms_an_update_of_{count}": each_ms}
    yield _compare("whole run", "agent steps/s", lambda count: _whole_run(count, steps), args.repeats)


def _compare(name: str, unit: str, rate: Callable[[int], float], repeats: int) -> Comparison:
    measured = [[rate(count) for count in _LEARNERS] for _ in range(repeats)]
    columns = zip(_LEARNERS, zip(*measured, strict=True), strict=True)
    return beside_first(name, unit, {f"learners: {count}": found for count, found in columns})


def _torchrun(learners: int) -> list[str]:
    return ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(learners)]


def _alone(learners: int, updates: int) -> tuple[float, float]:
    """Return updates a second, and the processor time of each in the first learner [ms]."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark_learners_")))
        words = [*_torchrun(learners), "-m", "benchmarks.learners", str(updates)]
        program = Program(stack, words, folder / "learners.txt")
        program.wait_until(lambda: bool(re.search(_FOUND, program.text())))
        ((rate, each_ms),) = re.findall(_FOUND, program.text())
    return float(rate), float(each_ms)


def _whole_run(learners: int, steps: int) -> float:
    """Return the agent steps a second of the second interval: the first one holds the start."""
    options = [*_SETTINGS, "--learn-start", "400", "--log-interval", str(steps)]
    with run_system(options, _ACTORS, _torchrun(learners)) as system:
        system.learner.wait_for_intervals(2)
        return steps / system.learner.intervals()[1]


def _learn(updates: int) -> None:
    """Make updates as one of torchrun's learners; the first one prints how fast."""
    world = join(os.environ, CPU)
    settings = share_of(options.parse(_SETTINGS, "launch_learner.py", ""), world.size)
    torch.set_num_threads(settings.learner_threads)
    agent = make_agent(settings, ATARI, CPU, learns=True, seed=1, ranks=world)
    update = update_work(agent, settings, _CHUNKS)
    for _ in range(_WARM_UP):
        update()
    start = time.perf_counter()
    used = time.process_time()
    for _ in range(updates):
        update()
    took = time.perf_counter() - start
    used = time.process_time() - used
    if os.environ["RANK"] == "0":
        print(f"{updates / took:.2f} updates/s, {1000 * used / updates:.2f} ms each", flush=True)
    world.sync(RoundState())  # nobody leaves while another one still learns
    world.leave()


if __name__ == "__main__":
    prepare_processor()  # as learners do
    _learn(int(sys.argv[1]))

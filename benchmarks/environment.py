"""How many frames a second the Atari environment plays: against the bare emulator, other environments, and in parallel.

All play random actions that were drawn before, episode after episode. A step is of 4 frames.
"""

import argparse
import itertools
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import numpy as np

from benchmarks.environment_peers import ale_vector, atari_preprocessing
from benchmarks.harness import Comparison, Work, beside_first, compare
from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.memory.rows import StepType
from rainbow_iqn_apex.saber.atari import NB_ACTIONS, open_emulator

SETTINGS = EnvironmentSettings(game="space_invaders")
FRAMES = SETTINGS.action_repeat  # a step
ACTIONS: list[int] = np.random.default_rng(1).integers(NB_ACTIONS, size=10_000).tolist()
WANTED = 0.85  # least ratio to the emulator alone
PARALLEL_WANTED = 1.95  # least ratio of two processes to one
CHILD_STEPS = 10  # between two looks at the clock


def emulator(steps: int) -> Work:
    """Return a work that plays frames and resets, and does nothing with them."""
    ale, turns = open_emulator(SETTINGS, 1), itertools.cycle(ACTIONS)

    def work() -> None:
        for action in itertools.islice(turns, steps):
            for _ in range(FRAMES):
                ale.act(action)
            if ale.game_over():
                ale.reset_game()

    return work


def ours(steps: int) -> Work:
    """Return a work that plays steps."""
    environment, turns = make_environment(SETTINGS, 1), itertools.cycle(ACTIONS)
    environment.reset()

    def work() -> None:
        for action in itertools.islice(turns, steps):
            if environment.step(action).step_type == StepType.LAST:
                environment.reset()

    return work


def serve(connection: Connection) -> None:
    """Answer each window of time with the frames a second played in it; for a process of its own."""
    work = ours(CHILD_STEPS)
    work()
    connection.send("ready")
    while window := connection.recv():
        connection.send(rate_between(work, *window))


def rate_between(work: Work, start: float, end: float) -> float:
    """Return the frames a second played between two moments of the clock that all processes share."""
    time.sleep(max(0.0, start - time.monotonic()))
    begun, calls = time.monotonic(), 0
    while (now := time.monotonic()) < end:
        work()
        calls += 1
    return calls * CHILD_STEPS * FRAMES / (now - begun)


@contextmanager
def players(number: int) -> Iterator[list[Connection]]:
    """Start processes that `serve`, and wait until they are ready."""
    context = multiprocessing.get_context("spawn")
    pairs = [context.Pipe() for _ in range(number)]
    processes = [context.Process(target=serve, args=(theirs,), daemon=True) for _, theirs in pairs]
    for process in processes:
        process.start()
    connections = [own for own, _ in pairs]
    for connection in connections:
        connection.recv()
    yield connections
    for connection in connections:
        connection.send(None)
    for process in processes:
        process.join()


def play_together(connections: list[Connection], window_s: float) -> float:
    """Return the frames a second of all processes together, in one window of time."""
    start = time.monotonic() + 0.05
    for connection in connections:
        connection.send((start, start + window_s))
    rates: list[float] = [connection.recv() for connection in connections]
    return sum(rates)


def parallel(window_s: float, repeats: int) -> Comparison:
    """Compare two processes at the same time with one of them."""
    one, two = "ours, one process", "ours, two processes"
    with players(2) as connections:
        measured = [
            (play_together(connections[:1], window_s), play_together(connections, window_s)) for _ in range(repeats)
        ]
    alone, together = zip(*measured, strict=True)
    return beside_first("processes", "frames/s", {one: alone, two: together}, {two: PARALLEL_WANTED})


def measure(args: argparse.Namespace) -> list[Comparison]:
    """Compare one environment with the emulator and others, and two processes with one."""
    steps, window_s = (20, 0.1) if args.quick else (200, 1.0)
    works = {
        "raw ale.act": emulator(steps),
        "ours": ours(steps),
        "ale_py AtariVectorEnv": ale_vector(SETTINGS.game, ACTIONS, steps),
        "gymnasium AtariPreprocessing": atari_preprocessing(SETTINGS.game, ACTIONS, steps),
    }
    single = compare(SETTINGS.game, "frames/s", works, args, per_call=FRAMES * steps, wanted={"ours": WANTED})
    return [single, parallel(window_s, args.repeats)]

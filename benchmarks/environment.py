"""How many frames a second the Atari environment plays: against the bare emulator, other environments, and in parallel.

All play random actions that were drawn before, episode after episode. A step is of 4 frames.
"""

import argparse
import itertools
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from multiprocessing.pool import Pool
from multiprocessing.synchronize import Barrier

import ale_py
import gymnasium
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.wrappers import AtariPreprocessing

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
_READY_S = 120.0  # longest until all processes are ready


def emulator(steps: int) -> Work:
    """Return a work that plays frames and resets, and does nothing with them."""
    ale = open_emulator(SETTINGS, 1)
    turns = itertools.cycle(ACTIONS)

    def work() -> None:
        for action in itertools.islice(turns, steps):
            for _ in range(FRAMES):
                ale.act(action)
            if ale.game_over():
                ale.reset_game()

    return work


def ours(steps: int) -> Work:
    """Return a work that plays steps."""
    environment = make_environment(SETTINGS, 1)
    turns = itertools.cycle(ACTIONS)
    environment.reset()

    def work() -> None:
        for action in itertools.islice(turns, steps):
            if environment.step(action).step_type == StepType.LAST:
                environment.reset()

    return work


@cache
def _own_work() -> Work:
    """Return what plays this process's environment."""
    return ours(CHILD_STEPS)


def _get_ready(barrier: Barrier) -> None:
    _own_work()()
    barrier.wait()


def rate_between(start: float, end: float) -> tuple[int, float]:
    """Return this process and the frames a second that it played between two moments of the clock that all share."""
    work = _own_work()
    time.sleep(max(0.0, start - time.monotonic()))
    begun = time.monotonic()
    calls = 0
    while (now := time.monotonic()) < end:
        work()
        calls += 1
    return os.getpid(), calls * CHILD_STEPS * FRAMES / (now - begun)


@contextmanager
def players(number: int) -> Iterator[Pool]:
    """Start processes that play, and wait until they are ready."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(number + 1, timeout=_READY_S)
    with context.Pool(number, _get_ready, (barrier,)) as pool:
        barrier.wait()
        yield pool


def play_together(pool: Pool, number: int, window_s: float) -> float:
    """Return the frames a second of so many of the processes together, in one window of time."""
    start = time.monotonic() + 0.05
    rates = dict(pool.starmap(rate_between, number * [(start, start + window_s)], chunksize=1))
    assert len(rates) == number, "no process has played twice"
    return sum(rates.values())


def parallel(window_s: float, repeats: int) -> Comparison:
    """Compare two processes at the same time with one of them."""
    one = "ours, one process"
    two = "ours, two processes"
    with players(2) as pool:
        measured = [[play_together(pool, number, window_s) for number in (1, 2)] for _ in range(repeats)]
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


_NO_LIMIT = 10**9  # frames


def ale_vector(game: str, actions: Sequence[int], steps: int) -> Work:
    """Return a work of ale-py's environment in C++, with one game and one thread, and no stack."""
    environment = AtariVectorEnv(
        game,
        num_envs=1,
        num_threads=1,
        stack_num=1,
        full_action_space=True,
        repeat_action_probability=0.25,
        reward_clipping=False,
        noop_max=0,
        use_fire_reset=False,
        max_num_frames_per_episode=_NO_LIMIT,
    )
    environment.reset(seed=1)
    turns = itertools.cycle(np.array(actions)[:, None])

    def work() -> None:
        for action in itertools.islice(turns, steps):
            environment.step(action)  # which resets by itself

    return work


def atari_preprocessing(game: str, actions: Sequence[int], steps: int) -> Work:
    """Return a work of gymnasium's wrapper in Python around ale-py's environment."""
    gymnasium.register_envs(ale_py)
    name = game.title().replace("_", "")
    played = gymnasium.make(
        f"ALE/{name}-v5",
        frameskip=1,
        repeat_action_probability=0.25,
        full_action_space=True,
        max_num_frames_per_episode=_NO_LIMIT,
        disable_env_checker=True,
    )
    environment = AtariPreprocessing(played, noop_max=0)
    environment.reset(seed=1)
    turns = itertools.cycle(actions)

    def work() -> None:
        for action in itertools.islice(turns, steps):
            _, _, terminated, truncated, _ = environment.step(action)
            if terminated or truncated:
                environment.reset()

    return work

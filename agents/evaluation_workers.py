"""Plays the episodes of an evaluation, in this process or in several; what comes out does not depend on how many.

Each episode has a seed of its own, which decides everything in it, and each process computes with one thread: sums that
several threads share may be rounded in another order.
"""

import io
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Iterator
from concurrent import futures
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from itertools import islice
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch

from agents import snapshot
from agents.interface import Agent
from agents.programs import observation_of, open_environment, select_device
from agents.registry import make_agent
from args import Args
from memory.errors import RunError, Stopped
from memory.rows import Arrays
from saber.environment import Environment
from saber.scores import EpisodeRecord
from saber.vector import VectorEnvironment
from saber.video import FilmedEnvironment, write_video

_TICK_S = 0.2  # from a request to stop until it is noticed


_Future: TypeAlias = "futures.Future[EpisodeRecord]"


class Task(NamedTuple):
    """An episode to play."""

    episode: int
    seed: int  # decides everything in it
    film: Path | None = None  # a video of it is written there


class Stop(Protocol):
    """An event of threads or of processes."""

    def is_set(self) -> bool:
        """Whether to stop."""


class EpisodePlayer:
    """One process's agent, which plays one episode after the other; raises UserError for weights that do not fit."""

    def __init__(self, args: Args, weights: dict[str, torch.Tensor], stop: Stop) -> None:
        device = select_device(args)
        with closing(open_environment(replace(args, render=False), args.seed)) as environment:
            seen, nb_actions = observation_of(environment), environment.nb_actions
            self.action_repeat = environment.action_repeat
        self._agent = make_agent(args, seen, nb_actions, device, learns=False, seed=args.seed)
        snapshot.restore_weights(self._agent, {"model_state_dict": weights})
        self._args = args
        self._weights = {name: tensor.to(device) for name, tensor in weights.items()}
        self._stop = stop

    def play(self, task: Task) -> EpisodeRecord:
        """Play an episode from its beginning to its end; raises Stopped."""
        with ExitStack() as stack:
            environment = open_environment(self._args, task.seed, record=task.film is not None)
            stack.callback(environment.close)
            if task.film is not None:
                video = stack.enter_context(write_video(task.film, environment.pictures_per_second))
                environment = FilmedEnvironment(environment, video)
            record = play_episode(self._agent, self._weights, environment, task.seed, self._stop)
        return replace(record, episode=task.episode)


def play_episode(
    agent: Agent, weights: dict[str, torch.Tensor], environment: Environment, seed: int, stop: Stop
) -> EpisodeRecord:
    """One episode, in which `seed` decides everything that the agent draws; raises Stopped."""
    generator = torch.Generator(next(iter(weights.values())).device).manual_seed(seed)
    agent.parts["generator"].load_state_dict({"state": generator.get_state()})
    agent.load(weights)
    vector = VectorEnvironment([environment])
    rows, state = vector.reset(), Arrays()
    while not stop.is_set():
        decision, state = agent.act(rows, state, None)
        after = vector.step(decision.actions)
        if after.episodes:
            return after.episodes[0]
        rows = after.rows
    raise Stopped


def number_of_workers(args: Args, device: torch.device) -> int:
    """How many processes the settings mean; never more than episodes."""
    if args.evaluation_workers:
        asked = args.evaluation_workers
    elif args.render:
        asked = 1
    else:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        asked = min(cores, 8) if device.type == "cuda" else cores  # each holds its own half gigabyte of a GPU
    return min(asked, args.evaluation_episodes)


class Players(Protocol):
    """Whoever plays the episodes."""

    action_repeat: int  # frames per agent step

    def play(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, EpisodeRecord]]:
        """Play all tasks, and give each as it ends.

        Raises Stopped on request and RunError if a process dies, when all that have ended were given.
        """


@contextmanager
def make_players(args: Args, saved: dict[str, Any], workers: int, stop: threading.Event) -> Iterator[Players]:
    """The players of an evaluation; no process of theirs is left when the block ends."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        # First in this process, also if others play: here an error in the settings is one line.
        player = EpisodePlayer(args, saved["model_state_dict"], stop)
        if workers == 1:
            yield _OwnProcess(player)
        else:
            with closing(_Processes(player, args, saved["model_state_dict"], workers, stop)) as players:
                yield players
    finally:
        torch.set_num_threads(threads)


class _OwnProcess:
    """Plays in this process: nothing to start, and a debugger sees everything."""

    def __init__(self, player: EpisodePlayer) -> None:
        self.action_repeat = player.action_repeat
        self._player = player

    def play(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, EpisodeRecord]]:
        for task in tasks:
            yield task, self._player.play(task)


class _Processes:
    """Plays in several new processes: forks of this one would inherit its threads' locks, and could not use a GPU."""

    def __init__(
        self,
        player: EpisodePlayer,
        args: Args,
        weights: dict[str, torch.Tensor],
        workers: int,
        stop: threading.Event,
    ) -> None:
        self.action_repeat = player.action_repeat
        self._workers = workers
        self._stop = stop
        context = multiprocessing.get_context("spawn")
        self._stop_all = context.Event()
        buffer = io.BytesIO()
        torch.save(weights, buffer)
        self._pool = futures.ProcessPoolExecutor(workers, context, _begin, (args, buffer.getvalue(), self._stop_all))

    def play(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, EpisodeRecord]]:
        waiting = iter(tasks)
        running: dict[_Future, Task] = {}
        self._submit(waiting, running)
        while running:
            stopping = self._stop.is_set()
            done, _ = futures.wait(running, 0 if stopping else _TICK_S, futures.FIRST_COMPLETED)
            for future in sorted(done, key=lambda future: future.exception() is not None):  # errors last
                with self._deaths():
                    played = running.pop(future), future.result()
                yield played
            if stopping:
                raise Stopped
            self._submit(waiting, running)

    def _submit(self, waiting: Iterator[Task], running: dict[_Future, Task]) -> None:
        """Keep all busy; a million at once would take minutes to submit, and to wait for."""
        with self._deaths(), _interrupts_blocked():  # processes inherit this: Ctrl-C reaches all, one tells the others
            for task in islice(waiting, 2 * self._workers - len(running)):
                running[self._pool.submit(_play, task)] = task

    @contextmanager
    def _deaths(self) -> Iterator[None]:
        try:
            yield
        except futures.BrokenExecutor as error:
            if self._stop.is_set():  # a SIGTERM to the whole group ends them, too
                raise Stopped from error
            raise RunError(
                "a process of the evaluation has died, perhaps for want of memory: try fewer --evaluation-workers"
            ) from error

    def close(self) -> None:
        """Stop what is still playing, and wait for the processes to end."""
        self._stop_all.set()
        self._pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_player: EpisodePlayer  # of a process of the pool


def _begin(args: Args, weights: bytes, stop: Event) -> None:
    """Prepare a process of the pool."""
    global _player
    threading.Thread(target=_end_with_parent, name="end with parent", daemon=True).start()
    torch.set_num_threads(1)
    _player = EpisodePlayer(args, torch.load(io.BytesIO(weights), weights_only=True), stop)


def _end_with_parent() -> None:
    """Leave when the parent was killed: an idle process of a pool would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _play(task: Task) -> EpisodeRecord:
    return _player.play(task)

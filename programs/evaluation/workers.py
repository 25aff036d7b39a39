"""Plays the episodes of an evaluation, in this process or in several; the number of processes changes no result.

Each episode has a seed of its own, which decides everything in the episode. Each process computes with one thread: sums
that several threads share may be rounded in another order.
"""

import io
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from contextlib import closing, contextmanager
from itertools import islice
from multiprocessing.context import SpawnContext
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import RunError, Stopped, UserError
from rainbow_iqn_apex.common.signals import blocked, describe_end
from rainbow_iqn_apex.common.text import name_error, name_exit, one_line
from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.monitoring.video import VIDEO_SIZE, TimeLapse
from rainbow_iqn_apex.programs.common import temporary_environment
from rainbow_iqn_apex.programs.evaluation.episode import Stop, play_episode
from rainbow_iqn_apex.programs.evaluation.loaded_policy import LoadedPolicy
from rainbow_iqn_apex.programs.process import prepare_processor

_SIGNAL_S = 1.0  # until a signal that has ended another process is noticed here
_TICK_S = 0.2  # from a request to stop until it is noticed
_END_S = 5.0  # for the processes to end: many times as long as a step takes


class Task(NamedTuple):
    """An episode to play."""

    episode: int
    seed: int  # decides everything in it
    video: Path | None = None  # where to write one while it is played


class Played(NamedTuple):
    """An episode that has ended."""

    task: Task
    record: EpisodeRecord
    speed: int  # of its video, in multiples of the normal one; 0 without a video


_Future: TypeAlias = "futures.Future[Played]"


class EpisodePlayer:
    """One process's agent, which plays one episode after the other; raises UserError for weights that do not fit."""

    def __init__(self, args: Args, weights: dict[str, torch.Tensor], stop: Stop) -> None:
        self._loaded = LoadedPolicy(args, weights)
        self.action_repeat = self._loaded.action_repeat
        self.weights_hash = self._loaded.weights_hash
        self.acting = self._loaded.policy.acting_protocol()
        self._args = args
        self._stop = stop

    def play(self, task: Task) -> Played:
        """Play an episode from its beginning to its end; raises Stopped, and RunError if no video can be written."""
        self._loaded.reset(task.seed)
        policy = self._loaded.policy
        codes = self._loaded.codes
        option = "--record" if task.video else ""
        with temporary_environment(self._args, task.seed, recorded_by=option, evaluation=True) as environment:
            if task.video is None:
                return Played(task, play_episode(policy, environment, task.episode, self._stop, codes), 0)
            camera = TimeLapse(largest=VIDEO_SIZE, blinks=getattr(environment, "blinks", False))
            record = play_episode(policy, environment, task.episode, self._stop, codes, camera)
            try:
                camera.write(task.video, environment.pictures_per_second)
            except OSError as error:
                reason = error.strerror or "is the disk full?"
                raise RunError(f"{task.video.parent.parent}: a video cannot be written: {reason}") from error
            return Played(task, record, camera.stride)


def number_of_workers(args: Args, device: torch.device) -> int:
    """Return how many processes shall play by the settings; never more than episodes."""
    if args.evaluation_workers:
        asked = args.evaluation_workers
    elif args.render:
        asked = 1
    else:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        asked = min(cores, 8 if device.type == "cuda" else 32)  # half a gigabyte each, of a GPU or of memory
    return min(asked, args.evaluation_episodes)


@contextmanager
def make_players(
    args: Args, saved: dict[str, Any], workers: int, stop: threading.Event
) -> "Iterator[OwnProcess | Processes]":
    """Yield the players of an evaluation; none of their processes is left when the block ends."""
    if workers > 1:
        _check_script()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        # First in this process, also if others play: here an error in the settings is one line.
        player = EpisodePlayer(args, saved["model_state_dict"], stop)
        if workers == 1:
            yield OwnProcess(player)
        else:
            with closing(Processes(player, args, saved["model_state_dict"], workers, stop)) as players:
                yield players
    finally:
        torch.set_num_threads(threads)


def _check_script() -> None:
    """Raise UserError if new processes could not run the main module, as multiprocessing lets them do by its path."""
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)  # None in an interactive session
    if path is not None and main.__spec__ is None and not Path(path).is_file():
        raise UserError(
            f"--evaluation-workers: a script read from standard input ({path}) cannot start workers, which would have "
            "to read it again; save it as a file, or give --evaluation-workers 1"
        )


class OwnProcess:
    """Plays in this process: no process has to start, and a debugger reaches everything."""

    def __init__(self, player: EpisodePlayer) -> None:
        self.player = player

    def play(self, tasks: Iterable[Task]) -> Iterator[Played]:
        """Play all tasks, and yield each as it ends; raises Stopped."""
        yield from map(self.player.play, tasks)


class Processes:
    """Plays in several new processes: forks of this one would inherit its threads' locks, and could not use a GPU."""

    def __init__(
        self, player: EpisodePlayer, args: Args, weights: dict[str, torch.Tensor], workers: int, stop: threading.Event
    ) -> None:
        self.player = player  # holds what all processes have in common, but does not play
        self._workers = workers
        self._stop = stop
        context = multiprocessing.get_context("spawn")
        self._others = multiprocessing.active_children()  # of a script that evaluates among other things
        self._processes: set[BaseProcess] = set()  # that have played, or do
        self._weights = _Weights(weights)
        try:
            self._stop_all = SharedStop(context)
            self._pool = futures.ProcessPoolExecutor(workers, context, _begin, (args, self._weights, self._stop_all))
        except (OSError, ImportError) as error:  # shared memory and semaphores are files in /dev/shm
            self._weights.file.close()
            raise UserError(
                "--evaluation-workers: processes cannot share memory and semaphores here, perhaps for want of "
                f"/dev/shm ({one_line(error)}); give --evaluation-workers 1"
            ) from error

    def play(self, tasks: Iterable[Task]) -> Iterator[Played]:
        """Play all tasks, and yield each as it ends.

        After yielding all tasks that have ended, raises Stopped, or RunError if a process has died.
        """
        waiting = iter(tasks)
        running: set[_Future] = set()
        self._submit(waiting, running)
        while running:
            stopping = self._stop.is_set()
            done, _ = futures.wait(running, 0 if stopping else _TICK_S, futures.FIRST_COMPLETED)
            for future in sorted(done, key=lambda future: future.exception() is not None):  # errors last
                with self._deaths():
                    running.remove(future)
                    played = future.result()
                yield played
            if stopping:
                raise Stopped
            self._submit(waiting, running)

    def _submit(self, waiting: Iterator[Task], running: set[_Future]) -> None:
        """Keep all processes busy; a million tasks at once would take minutes to submit, and to wait for."""
        with self._deaths(), blocked(signal.SIGINT):  # Ctrl-C reaches all, and this process stops the others
            for task in islice(waiting, 2 * self._workers - len(running)):
                try:
                    running.add(self._pool.submit(_play, task))
                # The pool begins a process when it is given a task. If another dies meanwhile, a thread of the pool
                # closes the pipes that the new one would get, and their numbers may be given to others.
                except (OSError, ValueError) as error:
                    raise futures.BrokenExecutor(str(error)) from error
        self._processes.update(process for process in multiprocessing.active_children() if process not in self._others)

    @contextmanager
    def _deaths(self) -> Iterator[None]:
        try:
            yield
        except futures.BrokenExecutor as error:
            try:
                if self._stop.wait(_SIGNAL_S):  # a SIGTERM to the group ends them, too, perhaps before it comes here
                    raise Stopped from error
                end = self._first_end()
            finally:  # the pool has ended the others, but it forgets a process that it was just starting
                self._kill()
            memory = ", perhaps for want of memory: try fewer --evaluation-workers" * end.endswith("SIGKILL")
            raise RunError(f"a process of the evaluation {end}{memory}") from error

    def _first_end(self) -> str:
        """Return how the process has ended whose end has let the pool send SIGTERM to the others."""
        codes = [code for process in self._processes if (code := process.exitcode) is not None]
        return describe_end(min(codes, key=lambda code: code == -signal.SIGTERM)) if codes else "has ended"

    def close(self) -> None:
        """Stop the episodes under way, and wait for the processes to end; kill those that still run after 5 seconds."""
        self._stop_all.set()
        enough = threading.Timer(_END_S, self._kill)
        enough.start()
        self._pool.shutdown(wait=True, cancel_futures=True)
        enough.cancel()
        self._weights.file.close()

    def _kill(self) -> None:
        for process in multiprocessing.active_children():
            if process not in self._others:
                process.kill()


class SharedStop:
    """Tells other processes to stop, without the lock of multiprocessing's Event: a process killed with it keeps it."""

    def __init__(self, context: SpawnContext) -> None:
        self._flag = context.RawValue("b", 0)  # one byte of memory that the processes share

    def set(self) -> None:
        """Ask the processes to stop."""
        self._flag.value = 1

    def is_set(self) -> bool:
        """Return whether they shall stop."""
        return bool(self._flag.value)


class _Weights:
    """Weights for new processes, in a file without a name, which is never left behind.

    The arguments of a new process go through a pipe. If the process dies before it has read all of a full pipe, the
    writer waits for ever. So the weights arrive as the number of an open file.
    """

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        buffer = io.BytesIO()
        torch.save(weights, buffer)
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - stays open as long as processes may begin
        self.file.write(buffer.getbuffer())
        self.file.flush()

    def __reduce__(self) -> tuple[Callable[[Any], dict[str, torch.Tensor]], tuple[Any]]:
        return _load_weights, (DupFd(self.file.fileno()),)


def _load_weights(descriptor: Any) -> dict[str, torch.Tensor]:
    with os.fdopen(descriptor.detach(), "rb") as file:
        content = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)  # all processes share its position
    weights: dict[str, torch.Tensor] = torch.load(io.BytesIO(content), weights_only=True)
    return weights


_player: EpisodePlayer  # of a process of the pool
_failure = ""  # why it has none


def _begin(args: Args, weights: Any, stop: Stop) -> None:
    """Prepare a process of the pool; `weights` is what `_Weights` has become, a dictionary of tensors."""
    global _player, _failure
    threading.Thread(target=_end_with_parent, name="end with parent", daemon=True).start()
    prepare_processor()
    torch.set_num_threads(1)
    try:
        _player = EpisodePlayer(args, weights, stop)
    except Exception as error:  # noqa: BLE001 - the pool would report a death alone; the first task raises it
        _failure = one_line(error) if isinstance(error, UserError) else name_error(error)


def _end_with_parent() -> None:
    """Leave when the parent was killed: an idle process of a pool would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _play(task: Task) -> Played:
    if _failure:
        raise RunError(f"a process of the evaluation cannot play ({_failure})")
    try:
        return _player.play(task)
    except SystemExit as error:  # the pool would hand it over without its place
        raise RunError(name_exit(error)) from error

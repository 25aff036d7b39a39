"""Plays the episodes of an evaluation, in this process or in several; the number of processes changes no result.

Each episode has a seed of its own, which decides everything in the episode. Each process computes with one thread: sums
that several threads share may be rounded in another order.
"""

import io
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from copy import copy
from itertools import islice
from multiprocessing import connection
from multiprocessing.connection import Connection
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch

from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import RunError, Stopped, UserError
from rainbow_iqn_apex.common.signals import KILLED
from rainbow_iqn_apex.common.text import name_error, name_exit, one_line
from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.monitoring.video import VIDEO_SIZE, TimeLapse
from rainbow_iqn_apex.programs.common import temporary_environment
from rainbow_iqn_apex.programs.evaluation.episode import Stop, play_episode
from rainbow_iqn_apex.programs.evaluation.loaded_policy import LoadedPolicy
from rainbow_iqn_apex.programs.process import prepare_processor
from rainbow_iqn_apex.programs.supervision import SPAWN, Function, wait_for_ends

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


class _Worker(NamedTuple):
    """A process that plays, and the connection over which it gets one task after the other."""

    process: Function
    tasks: Connection


class Processes:
    """Plays in several new processes."""

    def __init__(
        self, player: EpisodePlayer, args: Args, weights: dict[str, torch.Tensor], workers: int, stop: threading.Event
    ) -> None:
        self.player = player  # holds what all processes have in common, but does not play
        self._args = args
        self._weights = _Weights(weights)
        self._most = workers
        self._stop = stop
        self._idle: list[_Worker] = []
        self._busy: dict[Connection, _Worker] = {}

    def play(self, tasks: Iterable[Task]) -> Iterator[Played]:
        """Play all tasks, and yield each as it ends.

        After yielding all tasks that have ended, raises Stopped, or RunError if a process has died.
        """
        waiting = iter(tasks)
        self._hand_out(waiting)
        while self._busy:
            is_stopping = self._stop.is_set()
            ready = connection.wait(self._busy, 0 if is_stopping else _TICK_S)
            dead = []
            errors = []
            for worker in [worker for place, worker in self._busy.items() if place in ready]:
                del self._busy[worker.tasks]
                try:
                    found = worker.tasks.recv()
                except (EOFError, OSError):
                    dead.append(worker)
                    continue
                self._idle.append(worker)
                if isinstance(found, Played):
                    yield found
                else:
                    errors.append(found)
            for error in errors:
                raise error
            for worker in dead:
                self._explain_death(worker)
            if is_stopping:
                raise Stopped
            self._hand_out(waiting)

    def _hand_out(self, waiting: Iterator[Task]) -> None:
        for task in islice(waiting, self._most - len(self._busy)):
            worker = self._idle.pop() if self._idle else self._start()
            self._busy[worker.tasks] = worker
            with suppress(OSError):  # it has died, which `play` finds next
                worker.tasks.send(task)

    def _start(self) -> _Worker:
        ours, theirs = SPAWN.Pipe()
        process = Function("a process of the evaluation", _work, (self._args, self._weights, theirs))
        with theirs:
            try:
                process.start()
            except OSError as error:
                raise RunError(f"{process.name} cannot be started ({one_line(error)})") from error
        return _Worker(process, ours)

    def _explain_death(self, worker: _Worker) -> NoReturn:
        if self._stop.wait(_SIGNAL_S):  # a SIGTERM to the group ends them, too, perhaps before it comes here
            raise Stopped
        for process in wait_for_ends([worker.process], _END_S):
            process.kill()
        is_killed = worker.process.exit_code == KILLED + signal.SIGKILL
        memory = ", perhaps for want of memory: try fewer --evaluation-workers" * is_killed
        raise RunError(f"{worker.process.end}{memory}")

    def close(self) -> None:
        """Stop the episodes under way, and wait for the processes to end; kill those that still run after 5 seconds."""
        workers = [*self._idle, *self._busy.values()]
        for worker in workers:
            worker.tasks.close()
        for process in wait_for_ends([worker.process for worker in workers], _END_S):
            process.kill()
        self._weights.file.close()


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


class _Closed:
    """A request to stop: the evaluation has closed the connection, or was killed.

    While this process plays, nothing else comes over the connection.
    """

    def __init__(self, tasks: Connection) -> None:
        self._tasks = tasks

    def is_set(self) -> bool:
        """Return whether playing must stop."""
        return self._tasks.poll()


def _work(args: Args, weights: Any, tasks: Connection) -> None:
    """Play in a process of its own; `weights` is what `_Weights` has become, a dictionary of tensors."""
    prepare_processor()
    torch.set_num_threads(1)
    player: EpisodePlayer | None = None
    failure: Exception | None = None
    try:
        player = EpisodePlayer(args, weights, _Closed(tasks))
    except Exception as error:  # noqa: BLE001 - the first task raises it
        told = one_line(error) if isinstance(error, UserError) else name_error(error)
        failure = RunError(f"a process of the evaluation cannot play ({told})")
    with suppress(EOFError, OSError, Stopped):  # the evaluation is over, or was killed
        while True:
            task = tasks.recv()
            tasks.send(_play(player, task) if player else failure)


def _play(player: EpisodePlayer, task: Task) -> Played | Exception:
    try:
        return player.play(task)
    except Stopped:
        raise
    except SystemExit as error:  # by somebody's environment
        return RunError(name_exit(error))
    except Exception as error:  # noqa: BLE001 - raised again by the process that evaluates, with this one's traceback
        sent = error if _travels(error) else RunError(f"a process of the evaluation has failed ({name_error(error)})")
        sent.add_note("".join(traceback.format_exception(error)))
        return sent


def _travels(error: Exception) -> bool:
    """Return whether another process can make this exception again, as a copy is made; its constructor may differ."""
    try:
        copy(error)
    except Exception:  # noqa: BLE001 - somebody else's code
        return False
    return True

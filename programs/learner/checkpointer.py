"""The checkpoints of a run, which are made of the states of its parts, and the weights that it keeps.

    found = newest_whole(folder, game)                    # a file and its content; None in a new run
    saved = parse(*found)                                 # a run to resume
    checkpointer = Checkpointer(run, agent, buffer, ingest, publisher, divergence, events)
    checkpointer.resume(saved)
    checkpointer.save()

Each rank of a run has a checkpointer, and all ranks call `resume`, `save` and `try_to_save` together.
Rank 0 writes the states of all ranks, and what the run has once.
"""

import json
import math
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec
import torch
from msgspec import Meta, Struct
from torch import Tensor

from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.agents.networks.network import Network
from rainbow_iqn_apex.agents.randomness import restore_generator
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common import schema
from rainbow_iqn_apex.common.errors import DivergedError, RunError, UserError
from rainbow_iqn_apex.common.files import short_path
from rainbow_iqn_apex.common.schema import Count
from rainbow_iqn_apex.common.text import one_line
from rainbow_iqn_apex.environments.scores import MARKS
from rainbow_iqn_apex.memory.broker.learner_client import Origin, begun_as
from rainbow_iqn_apex.memory.broker.leases import printable
from rainbow_iqn_apex.memory.buffer import Buffer, Checkpoint
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS, Crew, check_crews
from rainbow_iqn_apex.memory.messages import Record
from rainbow_iqn_apex.monitoring.report import EventLog
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.learner.ingest import Ingest
from rainbow_iqn_apex.programs.learner.publisher import Publisher
from rainbow_iqn_apex.programs.learner.trainers import Metrics
from rainbow_iqn_apex.programs.learner.update_scheduler import Progress, Run

_INTERVAL_S = 600.0  # work that a killed learner has to do again, at most
_RETRY_S = 60.0  # until files are written again after a failure
_CHECKED_METRICS = 1000  # that are checked together, as each check waits for the GPU

FirstMessages = dict[int, int]  # by actor, the number of the first message that a checkpoint needs of the log


class RankState(Struct, forbid_unknown_fields=True):
    """What one rank holds of a run: its actors' messages, its buffer and its random numbers."""

    counted: dict[Count, Count]  # by actor, the last message that the run has counted
    replay: Checkpoint
    replay_generator: Tensor  # [bytes] uint8
    generator: Tensor | None = None  # [bytes] uint8, of the agent; None: the agent's parts of the checkpoint have it
    episodes: list[Record] = []  # that are not logged yet

    def __post_init__(self) -> None:
        for state in (self.replay_generator, self.generator):
            if state is not None:
                _check_bytes(state)


class _Content(Struct):
    """What a checkpoint has next to a run's `Progress` and the states of the agent's parts."""

    run_name: str
    settings: str
    crews: list[Any]
    counted: dict[Count, Count]
    replay: Checkpoint
    replay_generator: Tensor
    published: dict[Count, Tensor]
    best_mean: float
    logged: Count
    finished: bool
    server: str
    saves: Count
    ranks: Annotated[
        list[RankState], Meta(max_length=MAX_ACTORS)
    ] = []  # of several learners; else the fields above are it


@dataclass(frozen=True)
class SavedRun:
    """A run as its checkpoint holds it."""

    path: Path
    content: dict[str, Any]  # of the file, with the states of the agent's parts
    progress: Progress
    settings: dict[str, Any]  # those that all processes of the run share
    name: str
    crews: tuple[Crew, ...]
    ranks: list[RankState]  # in their order
    published: dict[int, bytes]  # packets of weights by version
    best_mean: float
    logged: int  # bytes of the training log
    finished: bool
    origin: Origin


def newest_whole(folder: Path, game: str) -> tuple[Path, dict[str, Any]] | None:
    """Return the newest checkpoint that is whole, None if there is none; print a line for each damaged one.

    Raises UserError if no checkpoint is whole, or if one cannot be opened.
    """
    paths = snapshot.last_models(folder, game)
    for path in paths:
        try:
            return path, snapshot.load(path, "--path-to-results", folder)
        except snapshot.DamagedError as error:
            if path == paths[-1]:
                raise UserError(f"{error}: no checkpoint is whole; move what is here away to start afresh") from error
            print(f"{error}: going on from the checkpoint before it", flush=True)
    return None


def parse(path: Path, content: dict[str, Any]) -> SavedRun:
    """Return the run of the checkpoint at `path`; raises UserError for content that no learner has saved."""
    needed = {*_Content.__struct_fields__, *(field.name for field in fields(Progress))} - {"ranks"}
    if not content.keys() >= needed:
        raise UserError(
            f"--path-to-results: {short_path(path)} cannot be resumed from, only started from: give it as --model"
        )
    with damage_named(path):
        saved = schema.parse(content, _Content)
        return SavedRun(
            path,
            content,
            progress=schema.parse(content, Progress),
            settings=schema.parse(schema.parse_json(saved.settings), dict[str, Any]),
            name=saved.run_name,
            crews=check_crews(saved.crews),
            ranks=saved.ranks or [RankState(saved.counted, saved.replay, saved.replay_generator)],
            published={version: _check_bytes(packet).numpy().tobytes() for version, packet in saved.published.items()},
            best_mean=saved.best_mean,
            logged=saved.logged,
            finished=saved.finished,
            origin=Origin(printable(textwrap.shorten(saved.server, 200)), saved.saves),
        )


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turn the errors that a checkpoint's wrong values cause into one line that names the file."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        raise UserError(
            f"--path-to-results: {short_path(path)} cannot be resumed from, it is damaged ({one_line(error)}): move "
            "what is here away to start afresh"
        ) from error


def _check_bytes(tensor: Tensor) -> Tensor:
    if tensor.dtype != torch.uint8 or tensor.dim() != 1:
        raise ValueError("a tensor holds no bytes")
    return tensor


def best_mean_of(path: Path, run_id: str) -> float:
    """Return the mean score of the best snapshot at `path` if a learner of this run has written it, else -inf."""
    with suppress(UserError):  # there is none, or it is damaged
        best = snapshot.load(path, "best snapshot", path.parent)
        mean = best.get("best_mean")
        run = best.get("run_id")
        if isinstance(mean, float) and isinstance(run, str) and begun_as(run) == begun_as(run_id):
            return mean
    return -math.inf


class DivergenceCheck:
    """Raises DivergedError before anything that is not finite is saved or published."""

    def __init__(self, model: Network) -> None:
        self._model = model
        self._unchecked: list[tuple[str, Tensor]] = []  # metrics

    def note(self, updates: list[Metrics]) -> None:
        """Take the metrics of updates; checks them when many have come."""
        self._unchecked += [metric for metrics in updates for metric in metrics.items()]
        if len(self._unchecked) >= _CHECKED_METRICS:
            self.check_metrics()

    def check_metrics(self) -> None:
        """Raise DivergedError if a metric since the last call was not finite; waits for the device."""
        metrics = self._unchecked
        self._unchecked = []
        if metrics and not torch.stack([value for _, value in metrics]).isfinite().all():
            name = next(name for name, value in metrics if not value.isfinite())
            raise DivergedError(f"the {ascii(name)[1:-1][:60]}")

    def check(self) -> None:
        """Raise DivergedError if a metric or a weight is not finite: the metrics of some agents never show it."""
        self.check_metrics()
        # A weight that is not finite makes its sum so, which takes a thirtieth of the time on a CPU.
        if not all(part.sum().isfinite() for part in self._model.state_dict().values()):
            raise DivergedError("a weight")


class TwoNewest:
    """The two newest checkpoints of a game in a folder, in which no other process may write.

    There are two, so that a torn newest one costs only the work since the one before. The log in Redis has to reach
    back to what the older one needs.
    """

    def __init__(self, folder: Path, game: str) -> None:
        self._folder = folder
        self._game = game
        self.newest: Path | None = None  # that this process has read or written
        self.needs: FirstMessages = {}  # of the newest

    def save(self, agent: Agent, values: dict[str, Any], needs: FirstMessages) -> FirstMessages:
        """Write a checkpoint, and delete all but this one and the one before it.

        `needs` are those of this checkpoint. Returns the needs of the checkpoint before, up to which the log may be
        trimmed. A checkpoint that is written again at the same step replaces itself: then no file is deleted, and the
        log is not to be trimmed. Raises OSError for a full disk; then the two newest checkpoints stay.
        """
        path = snapshot.last_model(self._folder, self._game, int(values["T_learner"]))
        snapshot.save(path, agent, values)
        older: FirstMessages = {}
        if path != self.newest:
            for other in snapshot.last_models(self._folder, self._game):
                if other not in (path, self.newest):
                    other.unlink()
            older = self.needs
        self.newest = path
        self.needs = needs
        return older


def points_to_keep(args: Args, action_repeat: int) -> list[int]:
    """Return the agent steps at which weights are kept, upwards; before learning begins there is nothing to keep.

    They are for evaluations at SABER's marks, and at even intervals for a learning curve of evaluations.
    """
    marks = {-(-frames // action_repeat) for frames in MARKS}
    even = {args.T_max * i // args.keep_checkpoints for i in range(1, args.keep_checkpoints + 1)}
    return sorted(steps for steps in marks | even if args.learn_start < steps <= args.T_max)


def point_passed(points: Sequence[int], before: int, steps: int) -> int | None:
    """Return the last point that a run has passed on its way from `before` to `steps`; None if it has passed none."""
    return max((point for point in points if before < point <= steps), default=None)


class _Gathered(NamedTuple):
    ranks: list[dict[str, Any]]  # in their order
    needs: FirstMessages  # of all ranks' actors


class Checkpointer:
    """Saves the parts of a learner, and restores them; of a rank that does not lead, results and publisher are None."""

    def __init__(
        self,
        run: Run,
        agent: Agent,
        buffer: Buffer,
        ingest: Ingest,
        publisher: Publisher | None,
        divergence: DivergenceCheck,
        events: EventLog,
    ) -> None:
        args = run.args
        self._args = args
        self._client = run.client
        self._results = run.results
        self._progress = run.progress
        self._limiter = run.limiter
        self._world = run.world
        self._agent = agent
        self._buffer = buffer
        self._ingest = ingest
        self._publisher = publisher
        self._divergence = divergence
        self._events = events
        self._files = TwoNewest(args.path_to_results, args.task)
        self._best_mean = -math.inf  # over 100 consecutive training episodes, of the best snapshot
        self._points = points_to_keep(args, self._results.action_repeat) if self._results else []
        self._kept_at = self._steps_made()  # agent steps up to which weights were kept
        self._saved_at = 0  # chunks inserted when the log was last trimmed
        self._next = time.monotonic() + _INTERVAL_S
        self._not_before = 0.0  # when files may be written again, after a failure

    # --- resuming ---

    def resume(self, saved: SavedRun) -> bool:
        """Restore all but the agent's parts and `Progress`; returns whether Redis has lost nothing of any rank's."""
        own = saved.ranks[self._world.rank]
        restore_generator(self._buffer.generator, own.replay_generator)
        if own.generator is not None:
            restore_generator(self._agent.generator, own.generator)
        is_lost = not self._ingest.load_state_dict(own.counted, own.episodes)
        self._buffer.restore(own.replay, self._ingest.counted)
        ranks = self._world.exchange((is_lost, self._buffer.oldest()), tuple[bool, dict[int, int]])
        is_whole = not any(lost for lost, _ in ranks)
        if self._publisher and self._results:
            self._publisher.load_state_dict(saved.published)
            self._results.load_state_dict(saved.logged, saved.path, again=self._limiter.synchronize and is_whole)
            self._events.note(f"resumed at T = {self._progress.T_learner}")
            self._best_mean = saved.best_mean
            if not self._limiter.synchronize:  # in lockstep the run reaches the same means again
                self._best_mean = max(self._best_mean, best_mean_of(self._best_path, self._progress.run_id))
        self._files.newest = saved.path
        self._files.needs = {actor: first for _, oldest in ranks for actor, first in oldest.items()}
        self._saved_at = self._buffer.inserted
        return is_whole

    # --- checkpoints ---

    def is_due(self) -> bool:
        """Return whether this rank asks for a checkpoint: now and then, and before its log outgrows its budget."""
        now = time.monotonic()
        is_late = self._results is not None and now >= self._next
        turned_over = self._buffer.inserted - self._saved_at >= self._buffer.turnover  # see budget._LOG_SHARE
        return (is_late or turned_over) and now >= self._not_before

    def try_to_save(self) -> None:
        """Save as `save`; an OSError only prints a line, see `try_to`."""
        gathered = self._gather()
        self._next = 0.0  # due until it is written: another learner whose log is full asks for it once
        self.try_to(lambda: self._write(gathered))

    def save(self, *, finished: bool = False, trims: bool = True) -> None:
        """Write a checkpoint; raises DivergedError for weights that must not be saved, OSError for a full disk.

        Then drop from the log what neither this checkpoint nor the one before needs, unless the server is gone. A run
        is `finished` once T-max is reached, and all that belongs to it is logged.
        """
        self._write(self._gather(), finished=finished, trims=trims)

    def _gather(self) -> _Gathered:
        """Return the states of all ranks; raises RunError if their weights are not the same."""
        self._divergence.check()
        own = {
            **self._ingest.state_dict(),
            "replay": msgspec.structs.asdict(self._buffer.checkpoint()),
            "replay_generator": self._buffer.generator.get_state(),
            "generator": self._agent.generator.get_state(),
        }
        weights = snapshot.weights_hash(self._agent.model) if self._world.size > 1 else ""
        found = self._world.gather_states({"state": own, "weights": weights, "needs": self._ingest.needs()})
        if len({rank["weights"] for rank in found}) != 1:
            raise RunError(
                "the learners' weights are not the same any more, so nothing is saved: start all again with the same "
                "command, and they go on from the checkpoint; if it happens again, their machines compute differently"
            )
        states = [rank["state"] for rank in found]
        if self._world.size > 1 and not self._limiter.synchronize:  # no order of the log's lines has to be kept
            self._ingest.log([record for state in states for record in state["episodes"]])
            for state in states:
                state["episodes"] = []
        return _Gathered(states, {actor: first for rank in found for actor, first in rank["needs"].items()})

    def _write(self, gathered: _Gathered, *, finished: bool = False, trims: bool = True) -> None:
        if self._results and self._publisher:
            self.keep_weights(finished=finished)  # before: a run that resumes does not pass these points again
            first, *others = gathered.ranks
            values = self._run_state() | {
                **{name: first[name] for name in ("counted", "replay", "replay_generator")},
                **({"ranks": gathered.ranks} if others else {}),
                **self._publisher.state_dict(),
                **self._client.origin()._asdict(),
                **self._results.state_dict(),
                "best_mean": self._best_mean,
                "finished": finished,
            }
            older = self._files.save(self._agent, values, gathered.needs)
            self._results.record_progress(self._steps_made())
            self._events.note(f"checkpoint at T = {self._progress.T_learner}")
            if trims:
                self._client.trim(older)
            self._next = time.monotonic() + _INTERVAL_S
        self._saved_at = self._buffer.inserted

    def _run_state(self) -> dict[str, Any]:
        """Return what every snapshot holds of its run."""
        return asdict(self._progress) | {
            "run_name": self._args.name,
            "crews": [list(crew) for crew in self._limiter.crews],
            "settings": json.dumps(self._args.shared),
        }

    def _steps_made(self) -> int:
        """Count the agent steps that the run has made; in lockstep the round under way is not in `T_actors` yet."""
        progress = self._progress
        return max(progress.T_actors, progress.T_learner if self._limiter.synchronize else 0)

    # --- what rank 0 writes next to checkpoints ---

    def try_to(self, write: Callable[[], None]) -> None:
        """Write what a later call will write again: so a full disk does not end the run, and nothing is lost yet.

        After a failure nothing is written for a while. The log is not trimmed meanwhile, so the older checkpoints can
        still be resumed from.
        """
        if time.monotonic() < self._not_before:
            return
        try:
            write()
        except OSError as error:
            self._not_before = time.monotonic() + _RETRY_S
            print(f"Not written, and tried again in {_RETRY_S:.0f} sec: {error}", flush=True)

    def keep_weights(self, *, finished: bool = False) -> None:
        """Write a snapshot of the weights alone if the run has passed a point at which weights are kept.

        The file is named after its point, and is never deleted. The weights are those of the update that passed the
        point, a few steps later; the file holds their own counts. A run that resumes from before a point passes the
        point again, and replaces the file. Raises OSError for a full disk.
        """
        steps = self._args.T_max if finished else self._steps_made()  # without lockstep actors may have played less
        if (point := point_passed(self._points, self._kept_at, steps)) is not None:
            self._divergence.check_metrics()
            path = self._args.path_to_results / f"model_{self._args.task}_{point}.pth"
            snapshot.save_weights(path, self._agent, self._run_state())
        self._kept_at = steps

    def save_best(self) -> None:
        """Write the best snapshot if the newest 100 training episodes are the best so far."""
        assert self._results
        self._divergence.check_metrics()
        mean = self._results.mean_score(self._progress.T_learner)
        if mean is not None and mean > self._best_mean:
            snapshot.save(self._best_path, self._agent, self._run_state() | {"best_mean": mean})
            self._best_mean = mean

    @property
    def _best_path(self) -> Path:
        return self._args.path_to_results / f"best_model_{self._args.task}.pth"

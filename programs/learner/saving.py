"""Writes checkpoints, kept weights and the best snapshot, and takes a checkpoint up again."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from rainbow_iqn_apex.agents.interface import Agent
from rainbow_iqn_apex.common.errors import DivergedError
from rainbow_iqn_apex.common.files import short_path
from rainbow_iqn_apex.memory.buffer import Buffer
from rainbow_iqn_apex.monitoring.report import EventLog
from rainbow_iqn_apex.programs.learner.checkpoints import FirstMessages
from rainbow_iqn_apex.programs.learner.ingest import Ingest
from rainbow_iqn_apex.programs.learner.kept_weights import KeptWeights, points_to_keep
from rainbow_iqn_apex.programs.learner.publisher import Publisher
from rainbow_iqn_apex.programs.learner.run import Run
from rainbow_iqn_apex.programs.learner.saved_run import SavedRun
from rainbow_iqn_apex.programs.learner.shared_checkpoint import Gathered, SharedCheckpoint
from rainbow_iqn_apex.programs.snapshot import steps_made

_SNAPSHOT_INTERVAL_S = 600.0  # work that a killed learner has to do again, at most
_RETRY_S = 60.0  # until files are written again after a failure


class Saver:
    """Saves a run's learner; `check` raises if the present weights must not be saved."""

    def __init__(
        self, run: Run, agent: Agent, buffer: Buffer, ingest: Ingest, publisher: Publisher, check: Callable[[], None],
        events: EventLog,
    ) -> None:  # fmt: skip
        args, results = run.args, run.results
        self.finished = False  # T-max is reached, and all that belongs to it is saved and logged
        self._args = args
        self._agent = agent
        self._buffer = buffer
        self._client = run.client
        self._results = results
        self._progress = run.progress
        self._limiter = run.limiter
        self._ingest = ingest
        self._team = run.team
        self._shared = SharedCheckpoint(run, agent, buffer, ingest)
        self._publisher = publisher
        self._check = check
        self._events = events
        self._kept = KeptWeights(
            results.folder, args.task, points_to_keep(args, results.action_repeat), self._steps_made
        )
        self._next = time.monotonic() + _SNAPSHOT_INTERVAL_S
        self._not_before = 0.0  # when files may be written again, after a failure
        self._trimmed_at = 0  # chunks inserted when the log was last trimmed

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

    def save_if_due(self) -> None:
        """Save from time to time, and before the log in Redis outgrows what the budget has counted."""
        now = time.monotonic()
        turned_over = self._buffer.inserted - self._trimmed_at >= self._buffer.turnover
        is_due = (now >= self._next or turned_over) and now >= self._not_before  # see budget._LOG_SHARE
        if self._team.total(int(is_due))[0]:
            self.try_to_save()

    def try_to_save(self) -> None:
        """Save as `save`; an OSError only prints a line, see `try_to`."""
        gathered = self._gather()
        self._next = 0.0  # due until it is written: another learner whose log is full asks for it once
        self.try_to(lambda: self._save(gathered))

    def save(self) -> None:
        """Write a checkpoint, and drop from the log what neither this checkpoint nor the one before needs.

        Of several learners, all call this together, or all call `try_to_save`.
        """
        self._save(self._gather())

    def _gather(self) -> Gathered:
        self.check_finite()
        return self._shared.gather()

    def check_finite(self) -> None:
        """Raise DivergedError if a metric or a weight is not finite: of some agents no metric shows it."""
        self._check()
        # What is not finite makes its sum so, which takes a thirtieth of the time on a CPU.
        if not all(part.sum().isfinite() for part in self._agent.model.state_dict().values()):
            raise DivergedError("a weight")

    def _save(self, gathered: Gathered) -> None:
        self._client.trim(self._write_checkpoint(gathered))
        self._trimmed_at = self._buffer.inserted
        self._next = time.monotonic() + _SNAPSHOT_INTERVAL_S

    def write_checkpoint(self) -> None:
        """Write a checkpoint, and leave the log as it is."""
        self._write_checkpoint(self._gather())

    def _write_checkpoint(self, gathered: Gathered) -> FirstMessages:
        """Write a checkpoint, and return by actor the number up to which the log may be trimmed."""
        self.keep_weights()
        values = {
            "counted": self._ingest.counted,
            "replay": self._buffer.checkpoint()._asdict(),
            "replay_generator": self._buffer.generator.get_state(),
            "logged": self._results.log.size,
            "finished": self.finished,
            **self._client.origin()._asdict(),
            # After a stop in the middle of a round, no actor may get the present weights before the round's end. An
            # actor that has a round left to play needs the weights of the version before.
            "published": {
                version: torch.frombuffer(bytearray(packet), dtype=torch.uint8)
                for version, packet in self._publisher.packets().items()
            },
        }
        values |= gathered.values
        older = self._results.save_checkpoint(self._agent, self._values() | values, gathered.needs)
        self._events.note(f"checkpoint at T = {self._progress.T_learner}")
        return older

    def keep_weights(self) -> None:
        """Write a snapshot of the weights alone if the run has passed a point at which weights are kept."""
        steps = self._args.T_max if self.finished else self._steps_made  # without lockstep actors may have played less
        if not self._kept.due(steps):  # after each update
            self._kept.done = steps
            return
        self._check()
        self._kept.keep(steps, self._agent, self._values())

    def save_best(self) -> None:
        """Write the best snapshot if the newest episodes are the best so far."""
        self._check()
        self._results.save_best(self._agent, self._values())

    def resume(self, saved: SavedRun) -> bool:
        """Take up what a checkpoint holds beside agent and `Progress`; returns whether Redis has lost none of it."""
        self._publisher.restore(saved.published)
        whole = self._shared.resume(saved)
        self._events.note(f"resumed at T = {self._progress.T_learner}")
        log, logged = self._results.log, saved.logged
        if log.size < logged:
            print(
                f"{short_path(log.path)} has lost episodes: it has {log.size} bytes, and had {logged} when "
                f"{short_path(saved.path)} was saved; the run goes on without these scores, so stop it first to "
                "put the file back",
                flush=True,
            )
        if self._limiter.synchronize and whole:
            log.go_back(logged)
        self._results.checkpoints.needs = self._shared.oldest()
        self._trimmed_at = self._buffer.inserted
        return whole

    @property
    def _steps_made(self) -> int:
        return steps_made(asdict(self._progress), lockstep=self._limiter.synchronize)

    def _values(self) -> dict[str, Any]:
        values = {
            "run_name": self._args.name,
            "crews": [list(crew) for crew in self._limiter.crews],
            "settings": json.dumps(self._args.shared),
        }
        return asdict(self._progress) | values

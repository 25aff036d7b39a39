"""The runs of a report, and which logs are one run twice.

A run is one training log `<game>.csv`; another seed is another log, in another folder. A log of several games is a run
of each, whose frames are those of all games together. The record `<game>.json` beside the log holds its settings; the
log of an Atari game without a record is taken to have four frames per agent step. Other environments are counted in
agent steps, also where names in this package say frames.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.text import encodable
from rainbow_iqn_apex.environments.entries import parted
from rainbow_iqn_apex.environments.scores import SCORE_EPISODES, EpisodeRecord
from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.saber.report.settings import agree, comparable
from rainbow_iqn_apex.saber.results.run_record import RunRecord, read_record
from rainbow_iqn_apex.saber.results.task import Task, task_without_record
from rainbow_iqn_apex.saber.results.training_log import read_records

ACTION_REPEAT = 4  # frames per agent step in SABER, and of a game of the emulator without a record


@dataclass(frozen=True, eq=False)  # compared by identity: it holds arrays
class Run:
    """One training run of one game."""

    path: Path  # of its log
    task: Task
    record: RunRecord | None  # None: it is not there
    frames: Array  # [episodes] int64: frames (or agent steps) over all actors at each episode's end, in this order
    scores: Array  # [episodes, 3] float64: at 5 minutes, at 30 minutes, without limit
    label: str | None = None  # name that the command line gives to the run's agent
    order: int = 0  # of its label or folder on the command line

    @property
    def game(self) -> str:
        """The game, or another environment, as in the names of files."""
        return self.task.name

    @property
    def name(self) -> str:
        """The path for readers."""
        return encodable(str(self.path))

    @cached_property
    def reached(self) -> int:
        """Frames that the run has made: by its record, or at least up to its last episode's end."""
        recorded = self.record.reached * self.frames_per_step if self.record else 0
        return max(recorded, int(self.frames[-1]))

    @property
    def frames_per_step(self) -> int:
        """How many frames count for an agent step."""
        return _frames_per_step(self.task, self.record)

    @property
    def settings(self) -> dict[str, Any]:
        """Of the newest start; empty if they are not known."""
        return self.record.starts[-1].settings if self.record else {}

    @property
    def begun_from(self) -> str | None:
        """The snapshot of another run with whose weights the first start began."""
        return self.record.starts[0].settings.get("model") if self.record else None

    @cached_property
    def comparable(self) -> dict[str, Any]:
        """The settings in which runs of one agent agree, as far as they are recorded."""
        return comparable(self.settings, self.begun_from)

    @cached_property
    def changed(self) -> dict[str, list[Any]]:
        """Settings that a later start of the run changed, with their values in turn."""
        values: dict[str, list[Any]] = {}
        for start in self.record.starts if self.record else ():
            for name, value in start.settings.items():
                known = values.setdefault(name, [])
                if value not in known[-1:]:
                    known.append(value)
        return {name: known for name, known in sorted(values.items()) if len(known) > 1}


def read_runs(path: Path, folder: Path, label: str | None, order: int) -> list[Run]:
    """Read a training log with its record: a run for each task that has been played to the end of an episode.

    Both are in `folder`, or below. Raises UserError for damaged files.
    """
    try:
        record = read_record(path.with_suffix(".json"), folder)
        lines = read_records(path, folder)
    except (OSError, ValueError) as error:
        raise UserError(str(error)) from error
    episodes = sorted(lines, key=lambda episode: episode.T_actors)
    tasks = record.tasks if record else (task_without_record(path.stem),)
    return [
        Run(
            path=path,
            task=task,
            record=record,
            frames=np.array([episode.T_actors * _frames_per_step(task, record) for episode in played], np.int64),
            scores=score_array(played),
            label=label,
            order=order,
        )
        for task, played in zip(tasks, parted(episodes, len(tasks)), strict=True)
        if played
    ]


def _frames_per_step(task: Task, record: RunRecord | None) -> int:
    if not task.is_atari:
        return 1  # counts agent steps, whatever `action_repeat` is
    return record.action_repeat if record else ACTION_REPEAT


def score_array(episodes: Sequence[EpisodeRecord]) -> Array:
    """Return the scores [episodes, 3]."""
    return np.array([[e.score_5min, e.score_30min, e.score_saber] for e in episodes], np.float64)


def without_copies(runs: list[Run], notes: list[str]) -> list[Run]:
    """Keep the longest of the logs that begin alike, and of equally long ones one with a record.

    A copy, a repetition with the same seed or what went on from a copy is no further sample. Adds a line to `notes` for
    each log that is left out.
    """
    kept: list[Run] = []
    for run in sorted(runs, key=lambda run: (-len(run.frames), run.record is None)):
        twin = next((other for other in kept if _same(run, other)), None)
        if twin is None:
            kept.append(run)
        else:
            notes.append(f"{run.path}: begins with the same episodes as {twin.path}")
    return [run for run in runs if run in kept]


def _same(short: Run, long: Run) -> bool:
    if short.game != long.game or short.label != long.label:
        return False
    if short.record and long.record and short.settings.get("seed") != long.settings.get("seed"):
        return False  # games of equal length can begin with equal scores
    if not agree(short.comparable, long.comparable):
        return False  # before they learn, runs of one seed play alike
    count = min(len(short.frames), SCORE_EPISODES)
    ours, theirs = ((run.frames[:count], run.scores[:count]) for run in (short, long))
    return all(map(np.array_equal, ours, theirs))

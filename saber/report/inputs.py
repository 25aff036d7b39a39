"""Reading what a report is of: training logs and evaluations in folders, and the names that the command line gives.

A run is one training log `<game>.csv`; another seed is another log, in another folder. A log of several games is a run
of each, whose frames are those of all games together. The record `<game>.json` beside the log holds its settings; the
log of an Atari game without a record is taken to have four frames per agent step. Other environments are counted in
agent steps, also where names in this package say frames. Evaluations of snapshots by `test_multiple_seed.py` are
another measurement: weights no longer change, and rules and numbers of episodes are their own.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.files import expand_home, is_there, open_regular
from rainbow_iqn_apex.common.text import encodable
from rainbow_iqn_apex.environments.registry import parted, task_name
from rainbow_iqn_apex.environments.scores import SCORE_EPISODES, EpisodeRecord
from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.saber.report.aggregates import Estimate
from rainbow_iqn_apex.saber.report.settings import ACTION_REPEAT, agree, comparable, protocol_of
from rainbow_iqn_apex.saber.results.evaluation_log import HEADER as EVALUATION
from rainbow_iqn_apex.saber.results.evaluation_log import (
    EvaluationRecord,
    read_evaluation,
    read_evaluation_record,
    student_interval,
)
from rainbow_iqn_apex.saber.results.run_record import RunRecord, read_record
from rainbow_iqn_apex.saber.results.task import Task, task_without_record
from rainbow_iqn_apex.saber.results.training_log import EVALUATION_HEADER as EVALUATION_ACTORS
from rainbow_iqn_apex.saber.results.training_log import HEADER as TRAINING
from rainbow_iqn_apex.saber.results.training_log import read_records

TABLES = "saber_tables"  # folder of a report's own CSV files, which are no logs
_EVALUATIONS = "evaluations"  # folder below a results folder, where programs write evaluations
_LONGEST_HEADER = 1000  # bytes
_LONGEST_LABEL = 60  # characters: plots and tables repeat the name
LIMITS = ("5min", "30min", "saber")  # of game time per episode; the columns of `Run.scores`


class _Log(NamedTuple):
    """A training log that was found."""

    path: Path
    folder: Path  # that was searched
    label: str | None  # name that the command line gives to the agent of its runs
    order: int  # of its label or folder on the command line


class Run:
    """One training run of one game."""

    def __init__(self, log: _Log, task: Task, record: RunRecord | None, played: Sequence[EpisodeRecord]) -> None:
        repeat = record.action_repeat if record else ACTION_REPEAT
        self.path = log.path
        self.name = encodable(str(log.path))  # for readers
        self.label = log.label
        self.order = log.order
        self.task = task
        self.record = record  # None: it is not there
        self.frames_per_step = repeat if task.is_atari else 1  # others count agent steps, whatever `action_repeat` is
        # Frames (or agent steps) over all actors at each episode's end, in this order. [episodes] int64
        self.frames = np.array([episode.T_actors * self.frames_per_step for episode in played], np.int64)
        self.scores = _score_array(played)  # [episodes, 3] float64
        # Frames that the run has made: by its record, or at least up to its last episode's end.
        self.reached = max(record.reached * self.frames_per_step if record else 0, int(self.frames[-1]))
        starts = record.starts if record else ()
        self.settings: dict[str, Any] = starts[-1].settings if starts else {}  # of the newest start
        # The settings in which runs of one agent agree, if they are recorded.
        self.comparable = comparable(self.settings, starts[0].settings.get("model") if starts else None)
        self.changed = _changes([start.settings for start in starts])


def _changes(starts: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    """Settings that a later start of a run changed, with their values in turn."""
    values: dict[str, list[Any]] = {}
    for settings in starts:
        for name, value in settings.items():
            known = values.setdefault(name, [])
            if value not in known[-1:]:
                known.append(value)
    return {name: known for name, known in sorted(values.items()) if len(known) > 1}


def _read_runs(log: _Log) -> list[Run]:
    """Read a training log with its record: a run for each task that has been played to the end of an episode.

    Raises UserError for damaged files.
    """
    try:
        record = read_record(log.path.with_suffix(".json"), log.folder)
        lines = read_records(log.path, log.folder)
    except (OSError, ValueError) as error:
        raise UserError(str(error)) from error
    episodes = sorted(lines, key=lambda episode: episode.T_actors)
    tasks = record.tasks if record else (task_without_record(log.path.stem),)
    parts = zip(tasks, parted(episodes, len(tasks)), strict=True)
    return [Run(log, task, record, played) for task, played in parts if played]


def _score_array(episodes: Sequence[EpisodeRecord]) -> Array:
    """Scores [episodes, 3] float64 at 5 minutes, at 30 minutes and without a limit."""
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
    if short.task.name != long.task.name or short.label != long.label:
        return False
    if short.record and long.record and short.settings.get("seed") != long.settings.get("seed"):
        return False  # games of equal length can begin with equal scores
    if not agree(short.comparable, long.comparable):
        return False  # before they learn, runs of one seed play alike
    count = min(len(short.frames), SCORE_EPISODES)
    ours, theirs = ((run.frames[:count], run.scores[:count]) for run in (short, long))
    return all(map(np.array_equal, ours, theirs))


class Evaluation:
    """The episodes that one snapshot has played."""

    def __init__(self, path: Path, record: EvaluationRecord, episodes: Sequence[EpisodeRecord]) -> None:
        settings = record.settings
        env = str(settings.get("env", "atari"))
        protocol = protocol_of(settings)
        self.path = path  # of its CSV
        self.name = encodable(str(path))  # for readers
        self.record = record
        self.scores = _score_array(episodes)
        self.task = Task(str(settings.get("game", path.stem)) if env == "atari" else task_name(env, ""), env)
        self.protocol = protocol.label if protocol else "protocol unknown"  # the rules, as they stand beside scores
        self.snapshot = encodable(Path(record.model).name)  # its file, for readers

    @property
    def frames(self) -> int | None:
        """Frames that the snapshot was trained for: by the record, or by the name of its file; None if unknown.

        Of other environments than Atari they are agent steps, as in `Run`.
        """
        repeat = self.record.settings.get("action_repeat", ACTION_REPEAT) if self.task.is_atari else 1
        steps = self.record.trained_steps
        if steps is None and (named := re.search(r"_(\d{1,18})\.pth$", self.snapshot)):
            steps = int(named[1])
        return None if steps is None or type(repeat) is not int else steps * repeat

    @cached_property
    def estimates(self) -> dict[str, Estimate]:
        """Mean of the episodes by limit, with Student's 95 % interval, which needs two episodes."""
        found = {}
        for limit, values in zip(LIMITS, self.scores.T, strict=True):
            low, high = student_interval(values.tolist()) or (None, None)
            found[limit] = Estimate(float(values.mean()), low, high)
        return found

    def begins(self, other: "Evaluation") -> bool:
        """Whether it is a copy of the other or of its first episodes: of the same weights, seed, rules and scores."""
        first = other.scores[: len(self.scores)]
        return self.record.decisive == other.record.decisive and np.array_equal(self.scores, first)


class Label(NamedTuple):
    """A name for the agent whose runs lie in a folder."""

    name: str
    path: Path


@dataclass(frozen=True)
class Inputs:
    """Runs and evaluations that were found."""

    runs: list[Run]  # by game and path
    evaluations: list[Evaluation]
    left_out: list[str]  # a line for each file that is not reported, with its reason


def parse_label(text: str) -> Label:
    """Read NAME=FOLDER, of which both may hold further "="; raises UserError without such a folder or file."""
    parts = text.split("=")
    for count in range(1, len(parts)):
        name, path = "=".join(parts[:count]).strip(), "=".join(parts[count:])
        if name and name.isprintable() and path and is_there(folder := _folder(path)):
            if len(name) > _LONGEST_LABEL:
                raise UserError(f"--label: expected a name of at most {_LONGEST_LABEL} characters, got {len(name)}")
            return Label(name, folder)
    raise UserError(
        f"--label: expected NAME=FOLDER with a folder that exists, as in 'large batch=runs/b', got {text!r}"
    )


def _folder(text: str) -> Path:
    try:
        return expand_home(text)
    except ValueError as error:
        raise UserError(f"--label: {error}") from error


def read_inputs(paths: Sequence[Path], labels: Sequence[Label] = ()) -> Inputs:
    """Read all runs and evaluations in these folders and files, and those of the labels.

    Raises UserError for a path that is no folder and no log, a label without logs, and if there is no run.
    """
    found = _Found()
    for order, label in sorted(enumerate(labels), key=lambda item: -len(item[1].path.resolve().parts)):
        known = len(found.logs)
        found.search(label.path, label.name, order)  # the deepest first: it says most of what lies in it
        if len(found.logs) == known:
            files = _files_below(label.path, []) if label.path.is_dir() else [label.path]
            if any(file.resolve() in found.logs for file in files):
                raise UserError(f"--label: {label.name!r}: all logs in {label.path} have a label already")
            raise UserError(f"--label: {label.name!r}: there is no training log in {label.path}")
    for order, path in enumerate(paths, start=len(labels)):
        found.search(path, None, order)
    left_out = found.left_out
    runs: list[Run] = []
    for log in found.logs.values():
        if found_here := _read_runs(log):
            runs += found_here
        else:
            left_out.append(f"{log.path}: no episode has ended yet")
    runs = without_copies(sorted(runs, key=lambda run: (run.task.name, str(run.path))), left_out)
    if not runs:
        given = ", ".join(map(str, [*paths, *(label.path for label in labels)]))
        raise UserError(f"{given}: no training log with an episode; name folders with <game>.csv, or such files")
    return Inputs(runs, _read_evaluations(found.evaluations.values(), left_out), left_out)


def _read_evaluations(paths: Iterable[tuple[Path, Path]], left_out: list[str]) -> list[Evaluation]:
    found: list[Evaluation] = []
    for path, folder in sorted(paths):
        try:
            record = read_evaluation_record(path.with_suffix(".json"), folder)
            if episodes := [episode.record for episode in read_evaluation(path, folder)]:
                found.append(Evaluation(path, record, episodes))
            else:
                left_out.append(f"{path}: no episode has ended yet")
        except (OSError, ValueError) as error:
            left_out.append(f"{path}: cannot be reported: {error}")
    kept: list[Evaluation] = []
    # A model card's copy, which may be shorter, does not name the run of the snapshot: the original has to come first.
    for one in sorted(found, key=lambda one: (-len(one.scores), one.path.parent.name != _EVALUATIONS)):
        if twin := next((other for other in kept if one.begins(other)), None):
            left_out.append(f"{one.path}: the same episodes as {twin.path}")
        else:
            kept.append(one)
    return [one for one in found if one in kept]


class _Found:
    """Files in the order of the search, each once by its resolved path."""

    def __init__(self) -> None:
        self.logs: dict[Path, _Log] = {}
        self.left_out: list[str] = []
        self.evaluations: dict[Path, tuple[Path, Path]] = {}  # with the folder that was searched
        self._unknown: set[Path] = set()

    def search(self, path: Path, label: str | None, order: int) -> None:
        """Take in a log, or all logs and evaluations in a folder and below; raises OSError for an unreadable log."""
        if not is_there(path):
            raise UserError(f"{path}: no such file or folder; expected a results folder or a <game>.csv in one")
        if path.is_dir():
            for child in _files_below(path, self.left_out):
                try:
                    self._add(child, path, label, order)
                except OSError as error:
                    if (line := f"{child}: {error.strerror}") not in self.left_out:  # as of a label's folder and this
                        self.left_out.append(line)
            return
        path = path.resolve() if path.is_symlink() else path  # which the user has named
        if _first_line(path, path.parent) != TRAINING:
            raise UserError(f"{path}: not a training log, whose first line is {TRAINING}")
        self._add(path, path.parent, label, order)

    def _add(self, path: Path, folder: Path, label: str | None, order: int) -> None:
        header = _first_line(path, folder)
        real = path.resolve()
        if header == TRAINING:
            self.logs.setdefault(real, _Log(path, folder, label, order))
        elif header == EVALUATION:
            self.evaluations.setdefault(real, (path, folder))
        elif real not in self._unknown and header != EVALUATION_ACTORS:  # no training scores
            self._unknown.add(real)
            self.left_out.append(f"{path}: not a training log")


def _files_below(folder: Path, notes: list[str]) -> list[Path]:
    """All files `*.csv`; without the tables of other reports.

    Links to folders are not followed: what they lead to lies outside, or is found where it is. Adds a line to `notes`
    for each link that leads out of the folder, and for each folder that cannot be read.
    """

    def note(error: OSError) -> None:
        notes.append(f"{error.filename}: {error.strerror}")

    found: list[Path] = []
    root = folder.resolve()
    for place, folders, names in os.walk(folder, onerror=note):
        if root.joinpath(place).name == TABLES:
            folders.clear()
            continue
        links = (link for name in folders if (link := Path(place, name)).is_symlink())
        notes += [
            f"{link}: leads out of {folder}; name it, too" for link in links if not link.resolve().is_relative_to(root)
        ]
        found += [Path(place, name) for name in names if name.endswith(".csv")]
    return sorted(found)


def _first_line(path: Path, folder: Path) -> str:
    with open_regular(path, folder) as file:
        return file.readline(_LONGEST_HEADER).rstrip(b"\r\n").decode(errors="replace")

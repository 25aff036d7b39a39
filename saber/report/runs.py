"""Finding the runs: which logs there are, what each is a run of, and which of them are one run twice.

A run is one training log `<game>.csv`; another seed is another log, in another folder. The record `<game>.json` beside
it holds its settings; logs of older programs have none, and are taken to have four frames per agent step.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from memory.errors import UserError
from memory.rows import Array
from saber.evaluation_log import HEADER as EVALUATION
from saber.run_record import RunRecord, read_record
from saber.scores import SCORE_EPISODES
from saber.training_log import HEADER as TRAINING
from saber.training_log import read_records

ACTION_REPEAT = 4  # frames per agent step in SABER, and of a run without a record
_LARGEST = 1e15  # points; sums of such scores are finite
# Settings in which runs of one report may differ: which run it is, how long it is, and what depends on the machine.
_MACHINE = {"device", "precision", "replay_device", "learner_threads", "queue_size", "length_actor_buffer"}
_FREE = {"seed", "game", "T_max"} | _MACHINE


@dataclass(frozen=True, eq=False)  # compared by identity: it holds arrays
class Run:
    """One training run of one game."""

    path: Path  # of its log
    game: str
    record: RunRecord | None  # None for a run of an older program
    frames: Array  # [episodes] int64: frames over all actors at each episode's end, in this order
    scores: Array  # [episodes, 3] float64: at 5 minutes, at 30 minutes, without limit

    @property
    def name(self) -> str:
        """The path for readers."""
        return printable(str(self.path))

    @cached_property
    def reached(self) -> int:
        """Frames that the run has made: by its record, or at least up to its last episode's end."""
        recorded = self.record.reached * self.record.action_repeat if self.record else 0
        return max(recorded, int(self.frames[-1]))

    @property
    def settings(self) -> dict[str, Any]:
        """Of the newest start; empty if they are not known."""
        return self.record.starts[-1].settings if self.record else {}

    @property
    def begun_from(self) -> str | None:
        """The snapshot of another run with whose weights the first start began."""
        return self.record.starts[0].settings.get("model") if self.record else None

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


def printable(text: str) -> str:
    """The text with what is not Unicode, as names of files may be, written as in Python."""
    return text.encode(errors="backslashreplace").decode()


def read_runs(paths: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """The runs in these folders and files by game and path, and a line for each file that was left out.

    Raises UserError for a path that is no folder and no log, for runs of different settings, and if there is no run.
    """
    runs: list[Run] = []
    notes: list[str] = []
    for path in _find_logs(paths, notes):
        if run := _read_run(path):
            runs.append(run)
        else:
            notes.append(f"{path}: no episode has ended yet")
    runs = _without_copies(sorted(runs, key=lambda run: (run.game, str(run.path))), notes)
    if not runs:
        given = ", ".join(map(str, paths))
        raise UserError(f"{given}: no training log with an episode; name folders with <game>.csv, or such files")
    _refuse_other_settings(runs)
    return runs, notes


def _find_logs(paths: Sequence[Path], notes: list[str]) -> list[Path]:
    """Every log once, by its resolved path; folders are searched with all that is below them."""
    found: dict[Path, Path] = {}
    for path in paths:
        if path.is_dir():
            for child in _files_below(path):
                if _starts_with(child, TRAINING):
                    found.setdefault(child.resolve(), child)
                elif not _starts_with(child, EVALUATION):
                    notes.append(f"{child}: not a training log")
        elif not path.is_file():
            raise UserError(f"{path}: no such file or folder; expected a results folder or a <game>.csv in one")
        elif not _starts_with(path, TRAINING):
            raise UserError(f"{path}: not a training log, whose first line is {TRAINING}")
        else:
            found.setdefault(path.resolve(), path)
    return list(found.values())


def _files_below(folder: Path) -> list[Path]:
    """All files `*.csv`, also behind links to folders, each folder once."""
    found: list[Path] = []
    seen: set[Path] = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        if (real := Path(place).resolve()) in seen:
            folders.clear()
            continue
        seen.add(real)
        found += [path for name in names if name.endswith(".csv") and (path := Path(place, name)).is_file()]
    return sorted(found)


def _starts_with(path: Path, header: str) -> bool:
    with path.open("rb") as file:
        return file.readline(len(header) + 2).rstrip(b"\n") == header.encode()


def _read_run(path: Path) -> Run | None:
    try:
        record = read_record(path.with_suffix(".json"))
        episodes = sorted(read_records(path), key=lambda episode: episode.T_actors)
    except ValueError as error:
        raise UserError(str(error)) from error
    if not episodes:
        return None
    repeat = record.action_repeat if record else ACTION_REPEAT
    scores = np.array([[e.score_5min, e.score_30min, e.score_saber] for e in episodes], np.float64)
    if (largest := np.abs(scores).max()) > _LARGEST:
        raise UserError(f"{path}: no game has a score of {largest:g}")
    return Run(
        path=path,
        game=record.game if record else path.stem,
        record=record,
        frames=np.array([episode.T_actors * repeat for episode in episodes], np.int64),
        scores=scores,
    )


def _without_copies(runs: list[Run], notes: list[str]) -> list[Run]:
    """Of logs that begin alike the longest: a copy, a repetition with the same seed or what went on from a copy is no
    further sample.
    """
    kept: list[Run] = []
    for run in sorted(runs, key=lambda run: -len(run.frames)):
        twin = next((other for other in kept if _same(run, other)), None)
        if twin is None:
            kept.append(run)
        else:
            notes.append(f"{run.path}: begins with the same episodes as {twin.path}")
    return [run for run in runs if run in kept]


def _same(short: Run, long: Run) -> bool:
    if short.game != long.game:
        return False
    if short.record and long.record and short.settings.get("seed") != long.settings.get("seed"):
        return False  # games of equal length can begin with equal scores
    if next(_differences(short, long), None):
        return False  # which is refused: before they learn, runs of one seed play alike
    count = min(len(short.frames), SCORE_EPISODES)
    ours, theirs = ((run.frames[:count], run.scores[:count]) for run in (short, long))
    return all(map(np.array_equal, ours, theirs))


def _refuse_other_settings(runs: Sequence[Run]) -> None:
    """What only some runs record is no difference: programs learn new settings while a benchmark's runs are made."""
    first: dict[str, Run] = {}  # run that records a setting, by its name
    errors = []
    for run in runs:
        others = {name: first.setdefault(name, run) for name in run.settings}
        errors += [line for other in dict.fromkeys(others.values()) for line in _differences(run, other)]
    if errors:
        raise UserError("\n".join(list(dict.fromkeys(errors))[:10]))


def _differences(run: Run, other: Run) -> Iterator[str]:
    """A line for each setting in which two runs of one report must agree and do not."""
    for name in sorted((run.settings.keys() & other.settings.keys()) - _FREE):
        value, wanted = _comparable(name, run), _comparable(name, other)
        if value != wanted:
            yield (
                f"{run.path}: {name} is {value!r}, and {wanted!r} in {other.path}; "
                "runs of different settings need reports of their own"
            )


def _comparable(name: str, run: Run) -> Any:
    """A setting as far as runs must agree in it: which snapshot a run began from is a matter of its game."""
    if name != "model":
        return run.settings[name]
    return "none" if run.begun_from is None else "a snapshot"

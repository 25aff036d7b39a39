"""Finding what a report is of: training logs and evaluations in folders, and the names that the command line gives."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.files import expand_home, is_there, open_regular
from rainbow_iqn_apex.saber.report.evaluations import Evaluation, read_one_evaluation
from rainbow_iqn_apex.saber.report.runs import Run, read_runs, without_copies
from rainbow_iqn_apex.saber.results.evaluation_log import HEADER as EVALUATION
from rainbow_iqn_apex.saber.results.evaluation_scores import HEADER as EVALUATION_ACTORS
from rainbow_iqn_apex.saber.results.training_log import HEADER as TRAINING

TABLES = "saber_tables"  # folder of a report's own CSV files, which are no logs
_EVALUATIONS = "evaluations"  # folder below a results folder, where programs write evaluations
_LONGEST_HEADER = 1000  # bytes
_LONGEST_LABEL = 60  # characters: plots and tables repeat the name


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
            raise UserError(f"--label: {label.name!r}: {_why_nothing_is_new(label.path, found)}")
    for order, path in enumerate(paths, start=len(labels)):
        found.search(path, None, order)
    left_out = found.left_out
    runs: list[Run] = []
    for log in found.logs.values():
        if found_here := read_runs(*log):
            runs += found_here
        else:
            left_out.append(f"{log.path}: no episode has ended yet")
    runs = without_copies(sorted(runs, key=lambda run: (run.game, str(run.path))), left_out)
    if not runs:
        given = ", ".join(map(str, [*paths, *(label.path for label in labels)]))
        raise UserError(f"{given}: no training log with an episode; name folders with <game>.csv, or such files")
    return Inputs(runs, _read_evaluations(found.evaluations.values(), left_out), left_out)


def _why_nothing_is_new(path: Path, found: "_Found") -> str:
    if not path.is_dir() or any(file.resolve() in found.logs for file in _files_below(path, [])):
        return f"all logs in {path} have a label already"
    return f"there is no training log in {path}"


def _read_evaluations(paths: Iterable[tuple[Path, Path]], left_out: list[str]) -> list[Evaluation]:
    found: list[Evaluation] = []
    for path, folder in sorted(paths):
        try:
            if evaluation := read_one_evaluation(path, folder):
                found.append(evaluation)
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


class _Log(NamedTuple):
    """A training log that was found."""

    path: Path
    folder: Path  # that was searched
    label: str | None
    order: int


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
        notes += [f"{link}: leads out of {folder}; name it, too" for link in links if not _is_in(link, root)]
        found += [Path(place, name) for name in names if name.endswith(".csv")]
    return sorted(found)


def _is_in(link: Path, root: Path) -> bool:
    return link.resolve().is_relative_to(root)


def _first_line(path: Path, folder: Path) -> str:
    with open_regular(path, folder) as file:
        return file.readline(_LONGEST_HEADER).rstrip(b"\r\n").decode(errors="replace")

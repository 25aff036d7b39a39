"""The runs of a results folder: which there are, and what the page shows of them."""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from rainbow_iqn_apex.common.files import open_regular
from rainbow_iqn_apex.monitoring.metrics import METRICS, is_given
from rainbow_iqn_apex.monitoring.report import Event
from rainbow_iqn_apex.programs.dashboard.run_files import RunFiles, RunKey
from rainbow_iqn_apex.saber.results.training_log import HEADER

_MOST_RUNS = 100
_MOST_FOLDERS = 10_000  # of a folder, in the order of their names
_DEPTH = 3  # folders below the results folder
_SEARCH_S = 10.0  # between searches for runs
_MOST_COMPARED = 8


class Results:
    """Reads a results folder when it is asked; all threads may call it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()  # of the search; each run has its own
        self._next_search = 0.0
        self._runs: dict[str, RunFiles] = {}  # by title, the newest first

    def _find(self) -> dict[str, RunFiles]:
        with self._lock:
            if time.monotonic() >= self._next_search:
                self._next_search = time.monotonic() + _SEARCH_S
                keys = find_runs(self._folder)
                self._runs = {key.title: self._runs.get(key.title) or RunFiles(self._folder, key) for key in keys}
            return self._runs

    @contextmanager
    def _read(self, title: str) -> Iterator[RunFiles | None]:
        """Look at a run, None if there is none of this name, and let no other thread at it; other runs are free."""
        run = self._find().get(title)
        with run.lock if run else nullcontext():
            if run:
                run.look()
            yield run

    def titles(self) -> list[str]:
        """Return the names of the runs, in an order that stays."""
        return sorted(self._find())

    def newest(self) -> str:
        """Return the run whose log was written last; empty if there is none."""
        return next(iter(self._find()), "")

    def title_in(self, folder: Path, task: str) -> str:
        """Return the run whose files are in this folder, an absolute one; empty if it is none of these."""
        keys = (run.key for run in self._find().values() if run.key.task == task)
        return next((key.title for key in keys if (self._folder / key.folder).resolve() == folder), "")

    def stamp(self, title: str) -> str:
        """Return a text that changes with a run's files."""
        run = self._find().get(title)
        return f"{title} {run.stamp if run else []}"

    def scores(self, titles: Sequence[str]) -> dict[str, Any]:
        """Return the score curves of some runs, and for the first of them the scores to compare with."""
        curves: list[dict[str, Any]] = []
        lines: list[dict[str, Any]] = []
        games = 0
        different = list(dict.fromkeys(titles))
        for title in different[:_MOST_COMPARED]:
            with self._read(title) as run:
                if run:
                    found = run.scores()
                    if not curves and len(found) == 1:
                        lines = run.lines(found[0])
                    curves += found
                    games += len(run.tasks) - len(found)
        return {"runs": curves, "lines": lines, "left_out": len(different[_MOST_COMPARED:]), "games_left_out": games}

    def metrics(self, title: str, names: Sequence[str]) -> dict[str, Any]:
        """Return the history of metrics by these names, unknown ones left out, and of all that the agent has named."""
        with self._read(title) as run:
            if not run:
                return {}
            newest = run.history.lines[-1].values if run.history.lines else ()
            return run.metrics([*(name for name in names if name in METRICS), *filter(is_given, newest)])

    def facts(self, title: str) -> dict[str, Any]:
        """Return what a run plays, how it is set, how far it got, and its newest scores beside the references."""
        with self._read(title) as run:
            return run.facts() if run else {}

    def events(self, title: str) -> list[Event]:
        """Return the newest events in a run's history, the oldest first."""
        with self._read(title) as run:
            return list(run.history.events) if run else []

    def films(self, title: str) -> list[dict[str, Any]]:
        """Return what a run's videos of evaluation episodes show."""
        run = self._find().get(title)
        return run.films() if run else []

    def film(self, title: str, place: str) -> bytes:
        """Return a run's video; empty if there is no such run, or no such video."""
        run = self._find().get(title)
        return run.film(place) if run else b""


def find_runs(results: Path) -> list[RunKey]:
    """Return the runs with the newest training logs in the folder or some folders below, the newest first.

    Links to folders are not followed: what they lead to lies outside, or is found where it is.
    """
    found: list[tuple[float, RunKey]] = []
    for place, folders, files in os.walk(results):
        folder = Path(place).relative_to(results)
        folders[:] = sorted(folders)[:_MOST_FOLDERS] if len(folder.parts) < _DEPTH else []
        logs = (Path(place, name) for name in sorted(files) if name.endswith(".csv"))
        written = ((_written(path, results), path.stem) for path in logs)
        found += [(at, RunKey(folder.as_posix(), task)) for at, task in written if at is not None]
    return [key for _, key in sorted(found, reverse=True)[:_MOST_RUNS]]


def _written(path: Path, results: Path) -> float | None:
    """Return when a training log was last written, in seconds since 1970; None for any other file."""
    try:
        with open_regular(path, results) as file:
            return os.fstat(file.fileno()).st_mtime if file.read(len(HEADER) + 1) == f"{HEADER}\n".encode() else None
    except OSError:
        return None

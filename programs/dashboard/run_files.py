"""The files of one run in a results folder, as far as they have been read: its logs, its record, its history."""

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rainbow_iqn_apex.common.files import open_regular, read_regular
from rainbow_iqn_apex.common.text import encodable, reason
from rainbow_iqn_apex.environments.registry import parted
from rainbow_iqn_apex.environments.scores import EpisodeRecord, VersionedRecord
from rainbow_iqn_apex.monitoring.report import Event
from rainbow_iqn_apex.monitoring.sinks import history
from rainbow_iqn_apex.monitoring.sinks.history import Line
from rainbow_iqn_apex.monitoring.sinks.videos import read_shown, video_path
from rainbow_iqn_apex.monitoring.video import FILM_SLOTS, is_webm
from rainbow_iqn_apex.saber.results.figure import reference_label, reference_lines, references
from rainbow_iqn_apex.saber.results.run_record import RunRecord, read_record
from rainbow_iqn_apex.saber.results.summary import Moment, ScoreCurve
from rainbow_iqn_apex.saber.results.task import COLUMNS, Task, task_without_record
from rainbow_iqn_apex.saber.results.training_log import header_of, parse_csv

_AT_ONCE = 1 << 22  # bytes of a file: a second's work for who parses them
_COMPARED = 200  # bytes
_MOST_BYTES = 1 << 28  # of a file; what lies behind is left out
_MOMENTS = 500  # of a curve
_MOST_GAMES = 16  # of a run, whose curves are shown
_MOST_EVENTS = 200  # the newest, of a history
_MOST_VIDEO_BYTES = 1 << 26
_MOST_LINES = 4000  # of a history: every second one is left out beyond
# Between two lines of a history, beyond which the learner was not running; monitoring/sinks/sink.py pauses for a
# two-thousandth of the learner's age at the most.
_PAUSE_S = 600.0
_PAUSE_SHARE = 3 / 2000  # of the age


class Tail:
    """Reads the whole lines of a growing file in a results folder, each once."""

    def __init__(self, path: Path, results: Path) -> None:
        self.path = path
        self._results = results
        self._file = (0, 0)  # device and inode
        self.has_more = False  # for the next call
        self.is_too_long = False  # so that its end is never read
        self.begin()

    def begin(self) -> None:
        """Read from the beginning next."""
        self._offset = 0
        self._end = b""  # the last of what was read

    def read(self) -> tuple[bytes, bool]:
        """Return the next whole lines, and whether the file has begun anew; raises OSError.

        It begins anew when it is replaced, or shorter than before. A large file takes several calls.
        """
        self.has_more = self.is_too_long = False  # nor if it is gone
        with open_regular(self.path, self._results) as file:
            found = os.fstat(file.fileno())  # not of the path, where another file may lie by now
            known = self._offset and (found.st_dev, found.st_ino) == self._file
            file.seek(self._offset - len(self._end))
            if anew := not known or file.read(len(self._end)) != self._end:  # or another file has the inode by now
                self._file = (found.st_dev, found.st_ino)
                self.begin()
                file.seek(0)
            self.is_too_long = found.st_size > _MOST_BYTES
            data = file.read(min(_AT_ONCE, _MOST_BYTES - self._offset))
        self.has_more = len(data) == _AT_ONCE
        whole = data[: data.rfind(b"\n") + 1]
        if self.has_more and not whole:  # no line of ours is so long
            whole = data
        self._offset += len(whole)
        self._end = (self._end + whole)[-_COMPARED:]
        return whole, anew


class EpisodeLog:
    """The episodes of a log, and their curves: one for each game that its run plays."""

    def __init__(self, path: Path, results: Path, record_type: type[EpisodeRecord]) -> None:
        self.tail = Tail(path, results)
        self._type = record_type
        self._begin(games=1)

    def _begin(self, games: int) -> None:
        self._fault: ValueError | None = None  # of a line that is no episode
        self.curves = [ScoreCurve(_MOMENTS) for _ in range(games)]

    def look(self, games: int) -> None:
        """Read what is new, of a large file a part; raises OSError without a file, ValueError for a foreign one."""
        if games != len(self.curves):  # the run's record was not there yet
            self.tail.begin()
            self._begin(games)
        lines, anew = self.tail.read()
        if anew:
            self._begin(games)
        if lines:
            content = lines if anew else f"{header_of(self._type)}\n".encode() + lines
            try:
                found = parse_csv(content, self.tail.path, self._type)
            except ValueError as error:
                self._fault = error
            else:
                for curve, played in zip(self.curves, parted(found, games), strict=True):
                    curve.add(played)
        if self._fault:
            raise self._fault


class History:
    """The lines of a history, and how they count agent steps and hours."""

    def __init__(self, path: Path, results: Path) -> None:
        self.tail = Tail(path, results)
        self.events: deque[Event] = deque(maxlen=_MOST_EVENTS)
        self._begin()

    def _begin(self) -> None:
        self.lines: list[Line] = []
        self.hours: list[float] = []  # for each line, those that the learner had been running
        self.events.clear()
        self._began = -math.inf  # [s] since 1970; the start of the learner as it runs now
        self._newest = -math.inf
        self._seconds = 0.0  # that the learner had been running

    def look(self) -> None:
        """Read what is new, of a large file a part; raises OSError without a file."""
        data, anew = self.tail.read()
        if anew:
            self._begin()
        for line in history.parse(data):
            self.lines.append(line)
            self.events += line.events
            self.hours.append(self._hours_at(line.at))
        while len(self.lines) > _MOST_LINES:  # the newest stays
            self.lines = self.lines[::-2][::-1]
            self.hours = self.hours[::-2][::-1]

    def _hours_at(self, at: float) -> float:
        """Return the hours that the learner had been running at the next line."""
        passed = at - self._newest
        if 0 <= passed <= max(_PAUSE_S, _PAUSE_SHARE * (self._newest - self._began)):
            self._seconds += passed
        else:
            self._began = at
        self._newest = at
        return self._seconds / 3600

    def hours_at(self, steps: Sequence[int]) -> list[float] | None:
        """Return when these agent steps were played, None without a history.

        A learner that went back to its checkpoint played some steps twice: the last time counts.
        """
        known: list[tuple[int, float]] = []
        for line, hour in zip(reversed(self.lines), reversed(self.hours), strict=True):
            if not known or line.step < known[-1][0]:
                known.append((line.step, hour))
        if not known:
            return None
        xp, fp = zip(*reversed(known), strict=True)
        return [round(float(hour), 5) for hour in np.interp(steps, xp, fp)]


class RunKey(NamedTuple):
    """Which run of a results folder: the folder in it, and the task in the names of the run's files."""

    folder: str
    task: str

    @property
    def title(self) -> str:
        """The run's name, for people and in addresses: UTF-8, which a folder's name need not be."""
        return encodable(self.task if self.folder == "." else f"{self.folder}/{self.task}")


class RunFiles:
    """Reads one run's files; a missing one counts as empty. One thread at a time may do that, which holds `lock`."""

    def __init__(self, results: Path, key: RunKey) -> None:
        folder = results / key.folder
        self.key = key
        self.lock = threading.Lock()
        self._results = results
        self._folder = folder
        self._logs = {
            "training": EpisodeLog(folder / f"{key.task}.csv", results, EpisodeRecord),
            "evaluation": EpisodeLog(folder / f"{key.task}_evaluation.csv", results, VersionedRecord),
        }
        self.history = History(history.path_of(folder, key.task), results)
        self.problem = ""  # why a file is not shown
        self.record: RunRecord | None = None

    @property
    def tasks(self) -> Sequence[Task]:
        """Return what the run plays, one task or several."""
        return self.record.tasks if self.record else (task_without_record(self.key.task),)

    @property
    def stamp(self) -> list[tuple[int, int]]:
        """Identity and size of each file, which change whenever the file does."""
        found: list[tuple[int, int]] = []
        for tail in self._tails:
            with suppress(OSError):
                status = tail.path.stat()
                found.append((status.st_ino, status.st_size))
        return found

    @property
    def _tails(self) -> list[Tail]:
        return [*(log.tail for log in self._logs.values()), self.history.tail]

    def look(self) -> None:
        """Read what is new in all files, of large ones a part."""
        self.problem = ""
        self._try(self._read_record)
        for log in self._logs.values():
            self._try(partial(log.look, len(self.tasks)))
        self._try(self.history.look)
        for tail in self._tails:
            if tail.is_too_long and not self.problem:
                self.problem = f"{tail.path.name}: only its first {_MOST_BYTES >> 20} MiB are read"

    def _try(self, read: Callable[[], None]) -> None:
        try:
            read()
        except FileNotFoundError:
            pass
        except OSError as error:
            self.problem = encodable(f"{error.filename}: {reason(error)}")[:300]
        except ValueError as error:
            self.problem = encodable(str(error))[:300]

    def _read_record(self) -> None:
        self.record = read_record(self._folder / f"{self.key.task}.json", self._results)

    def films(self) -> list[dict[str, Any]]:
        """Return what the run's videos show, for the page."""
        shown = read_shown(self._folder, self.key.task, self._results).films
        found = [(slot, info) for slot, info in shown.items() if video_path(self._folder, self.key.task, slot).exists()]
        return [{"place": slot, "at": info.at, "caption": info.caption} for slot, info in found]

    def film(self, place: str) -> bytes:
        """Return one of the run's videos, empty if there is no such video."""
        for slot in FILM_SLOTS:
            if slot == place:
                with suppress(OSError):
                    path = video_path(self._folder, self.key.task, slot)
                    content = read_regular(path, self._results, _MOST_VIDEO_BYTES)
                    return content if is_webm(content) else b""
        return b""

    def scores(self) -> list[dict[str, Any]]:
        """Return the curves of the scores for the page: a pair for each game."""
        same = {
            "repeat": self.record.action_repeat if self.record else 4,
            "problem": self.problem,
            "has_more": self._has_more,
        }
        titles = [self.key.title] if len(self.tasks) == 1 else [f"{self.key.title}: {one.title}" for one in self.tasks]
        return [
            {"title": title} | same | {name: self._curve(moments) for name, moments in self._moments(game).items()}
            for game, title in enumerate(titles[:_MOST_GAMES])
        ]

    @property
    def _has_more(self) -> bool:
        """Whether a part of a file is still to be read: the page asks again."""
        return any(tail.has_more for tail in self._tails)

    def _moments(self, game: int) -> dict[str, Sequence[Moment]]:
        """Return the moments of the curves of a game, by its number in the run."""
        return {name: log.curves[game].moments if game < len(log.curves) else () for name, log in self._logs.items()}

    def _curve(self, moments: Sequence[Moment]) -> dict[str, Any]:
        steps = [moment.newest.T_actors for moment in moments]
        summaries = [moment.summary for moment in moments]
        return {
            "steps": steps,
            "hours": self.history.hours_at(steps),
            "mean": [summary.mean for summary in summaries],
            "spread": [summary.standard_deviation for summary in summaries],
            "least": [summary.minimum for summary in summaries],
            "most": [summary.maximum for summary in summaries],
            "episodes": [summary.episodes for summary in summaries],
        }

    def lines(self, curves: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the scores to compare with; those near the run's own are `near`: the others would flatten them."""
        scores = self.tasks[0].scores
        if scores is None:
            return []
        means = [*curves["training"]["mean"], *curves["evaluation"]["mean"]] or [scores.random]
        near = {line.name for line in reference_lines(scores, min(means), max(means)).lines}
        known = references(scores) | {COLUMNS[name].label: value for name, value in scores.published.items()}
        return [
            {"name": name, "label": reference_label(name, value), "value": value, "near": name in near}
            for name, value in known.items()
        ]

    def metrics(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the history of some metrics for the page, at no more moments than a curve has."""
        every = max(1, -(-len(self.history.lines) // _MOMENTS))
        first = (len(self.history.lines) - 1) % every if self.history.lines else 0  # so that the newest is there
        lines = self.history.lines[first::every]
        return {
            "has_more": self._has_more,
            "steps": [line.step for line in lines],
            "hours": [round(hour, 5) for hour in self.history.hours[first::every]],
            "values": {name: [line.values.get(name) for line in lines] for name in names},
        }

    def facts(self) -> dict[str, Any]:
        """Return what the run plays, how it is set, how far it got, and its newest scores beside the references."""
        settings = self.record.starts[-1].settings if self.record else {}
        t_max = settings.get("T_max")
        length = t_max if isinstance(t_max, int) and t_max > 0 else None  # whatever somebody has written there
        several = len(self.tasks) > 1
        scores: dict[str, float] = {}
        normalised: dict[str, dict[str, float | None]] = {}
        for game, task in enumerate(self.tasks):
            curves = self._moments(game).items()
            newest = {name: moments[-1].summary.mean for name, moments in curves if moments}
            named = {f"{name}, {task.title}" if several else name: score for name, score in newest.items()}
            scores |= named
            if table := task.scores:
                for reference in ("human", "world_record"):
                    known = {name: table.normalised(score, reference) for name, score in named.items()}
                    normalised.setdefault(reference, {}).update(known)
        return {
            "game": ", ".join(task.title for task in self.tasks),
            "agent": str(settings.get("agent", "")),
            "scores": scores,
            "normalised": normalised,
            "references": references(None if several else self.tasks[0].scores),
            "metrics": self._newest_metrics(length),
            "t_max": length,
            "is_over": bool(self.record and self.record.reached >= (length or math.inf)),
        }

    def _newest_metrics(self, length: int | None) -> dict[str, float]:
        """Return the newest metrics, and how far the run got by its record, which is written as it ends."""
        values = dict(self.history.lines[-1].values) if self.history.lines else {}
        if (record := self.record) and record.reached >= values.get("time/total_timesteps", 0):
            values |= {"time/total_timesteps": record.reached, "time/frames": record.reached * record.action_repeat}
            values["time/progress"] = min(1.0, record.reached / (length or record.reached or 1))
        return values

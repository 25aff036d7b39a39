"""The files of an evaluation: its episodes as a CSV, and beside the CSV, as JSON, how the episodes are played.

The CSV is whole at every moment. An evaluation that is made in the same way again keeps the episodes of the CSV. Any
other evaluation is refused before anything is played, as these episodes would be wrong there.
"""

import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Annotated, Any, NamedTuple, Self

from msgspec import Meta

from rainbow_iqn_apex.common import schema
from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.common.files import MOST_RECORD_BYTES, lock_file, read_regular, short_path, write_file
from rainbow_iqn_apex.common.schema import Count, Counted, Word
from rainbow_iqn_apex.common.text import counted
from rainbow_iqn_apex.environments.scores import FRAMES_PER_MINUTE, EpisodeRecord, Score
from rainbow_iqn_apex.saber.results.task import REFERENCES, GameScores, Task
from rainbow_iqn_apex.saber.results.training_log import format_line, header_of, names_of, parse_csv

_INTERVAL_S = 1.0  # between writes of the CSV, which is written whole
_RETRY_S = 10.0
LEVEL = 0.95  # of the interval
_SCORES = {"SABER score": "score_saber", "at 30 minutes": "score_30min", "at 5 minutes": "score_5min"}  # of Atari


@dataclass(frozen=True)
class _Line:
    """A line of the CSV."""

    episode: Counted
    seed: Count
    score_5min: Score
    score_30min: Score
    score_saber: Score
    length: Counted
    end: Word


HEADER = header_of(_Line)
_PLAYED = [name for name in names_of(_Line) if name != "seed"]  # which an EpisodeRecord has, too


class EvaluatedEpisode(NamedTuple):
    """An episode and the seed that decides all of it: what the environment does, and what the agent draws."""

    seed: int
    record: EpisodeRecord


@dataclass(frozen=True)
class EvaluationRecord:
    """How an evaluation is made."""

    model: str  # path of the snapshot, from the folder of the CSV unless it is absolute
    weights: str  # hash of its parameters, as the learner prints it
    seed: int
    settings: dict[str, Any]  # of policy, game and rules, by name; plain values
    device: str
    versions: dict[str, str]  # of Python and packages
    commits: list[str]  # of the programs that played, in turn
    episodes: Annotated[int, Meta(ge=1, le=2**63 - 1)]  # asked for; the CSV has fewer of them until all have ended
    trained_steps: Count | None = None  # agent steps that the snapshot was trained for, if it holds them
    acting: dict[str, Any] | None = None  # the fields of agents.policy.ActingProtocol, of a policy that describes it

    def __post_init__(self) -> None:
        if b"\0" in os.fsencode(self.model):
            raise ValueError("model is no path")

    @property
    def decisive(self) -> dict[str, Any]:
        """All that the episodes depend on, by name."""
        return {"weights": self.weights, "seed": self.seed, "device": self.device, **self.settings, **self.versions}


class EvaluationLog:
    """The episodes of one evaluation, on disk and in memory; a context manager, as one process at a time writes them.

    Raises ValueError if the file at `path` (`*.csv`) is of another evaluation, or of none, or if another process is
    writing it.
    """

    def __init__(self, path: Path, record: EvaluationRecord) -> None:
        self.path = path
        self._asked = record.episodes
        self.record = record  # which `_read` joins with that of the files, if there are any
        try:
            self._lock = lock_file(path.with_name(f".{path.stem}.lock"))
        except BlockingIOError as error:
            raise ValueError(f"another evaluation is writing {short_path(path)}") from error
        try:
            self._episodes = self._read()
        except BaseException:
            self._lock.close()
            raise
        self._added = False
        self._next_write = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    @property
    def episodes(self) -> list[EvaluatedEpisode]:
        """Requested episodes that have ended, in the order of their numbers."""
        return [self._episodes[number] for number in sorted(self._episodes) if number < self._asked]

    def _read(self) -> dict[int, EvaluatedEpisode]:
        shown = short_path(self.path)
        try:
            before = read_evaluation_record(self.path.with_suffix(".json"))
            episodes = {episode.record.episode: episode for episode in read_evaluation(self.path)}
        except FileNotFoundError as error:
            if self.path.exists():
                missing = short_path(Path(error.filename))
                raise ValueError(f"{shown}: how it was made is not known: {missing} is missing") from error
            return {}
        now = self.record.decisive
        then = before.decisive
        packages = self.record.versions.keys() | before.versions.keys()
        once = (now.keys() ^ then.keys()) & packages  # an extra that came, or went, or that older records did not name
        if names := [name for name in now | then if name not in once and now.get(name) != then.get(name)]:
            differences = ", ".join(f"{name} is {now.get(name)!r}, and was {then.get(name)!r}" for name in names)
            raise ValueError(f"{shown} is of another evaluation (of {Path(before.model).name}): {differences}")
        self.record = replace(
            self.record,
            commits=list(dict.fromkeys([*before.commits, *self.record.commits])),
            episodes=max(before.episodes, self.record.episodes),
        )
        return episodes

    def add(self, seed: int, record: EpisodeRecord) -> None:
        """Add an episode; it is on the disk at once, or after a later call of `add` or `write`.

        Raises RunError for an episode with values that the file cannot hold.
        """
        episode = EvaluatedEpisode(seed, record)
        try:
            _line(episode)
        except ValueError as error:
            shown = short_path(self.path)
            raise RunError(f"{shown} cannot hold episode {record.episode}: {error}, found {record}") from error
        self._episodes[record.episode] = episode
        self._added = True
        if time.monotonic() < self._next_write:
            return
        self._next_write = time.monotonic() + _INTERVAL_S
        try:
            self.write()
        except OSError as error:
            self._next_write = time.monotonic() + _RETRY_S
            print(f"Not written, and tried again in {_RETRY_S:.0f} sec: {error}", file=sys.stderr, flush=True)

    def write(self) -> None:
        """Bring the files up to date, if an episode was added. Raises OSError."""
        if not self._added:
            return
        write_evaluation(self.path, self.record, [self._episodes[number] for number in sorted(self._episodes)])
        self._added = False


def write_evaluation(path: Path, record: EvaluationRecord, episodes: Sequence[EvaluatedEpisode]) -> None:
    """Write both files of an evaluation, of which `path` is the CSV. Raises OSError."""
    write_file(path.with_suffix(".json"), f"{json.dumps(asdict(record), indent=1)}\n".encode())
    write_file(path, "".join([f"{HEADER}\n", *map(_line, episodes)]).encode("ascii"))


def read_evaluation(path: Path, folder: Path | None = None) -> list[EvaluatedEpisode]:
    """Read the CSV of an evaluation; raises ValueError for any other file, OSError as `read_regular`."""
    return [
        EvaluatedEpisode(line.seed, EpisodeRecord(**{name: getattr(line, name) for name in _PLAYED}))
        for line in parse_csv(read_regular(path, folder or path.parent), path, _Line)
    ]


def _line(episode: EvaluatedEpisode) -> str:
    return format_line(_Line(seed=episode.seed, **{name: getattr(episode.record, name) for name in _PLAYED}))


def read_evaluation_record(path: Path, folder: Path | None = None) -> EvaluationRecord:
    """Read the JSON of an evaluation; raises ValueError for any other file, OSError as `read_regular`."""
    content = read_regular(path, folder or path.parent, MOST_RECORD_BYTES)
    try:
        values = schema.parse_json(content)
        if isinstance(values, dict):
            values.setdefault("acting", None)  # which earlier releases did not write
        return schema.parse_record(values, EvaluationRecord)
    except ValueError as error:
        raise ValueError(f"{short_path(path)}: not an evaluation's record ({error})") from error


class Interval(NamedTuple):
    """A confidence interval of a mean."""

    low: float
    high: float


def student_interval(values: Sequence[float]) -> Interval | None:
    """Student's t interval of the mean, mean ± t_(n - 1) s / √n; None for fewer than two values.

    Exact for normal values; for the mean of a hundred episodes' scores a good approximation (central limit theorem).
    """
    if len(values) < 2:
        return None
    from scipy.stats import t as student_t  # takes a second to import, which learners and actors do not need

    mean = fmean(values)
    margin = float(student_t.ppf((1 + LEVEL) / 2, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return Interval(mean - margin, mean + margin)


def format_evaluation(records: Sequence[EpisodeRecord], action_repeat: int, task: Task, acting: str = "") -> str:
    """Write the summary of at least one episode as a table, without a final newline.

    `action_repeat` is the number of frames per agent step, `acting` a sentence about how actions were chosen.
    SABER's scores and minutes are of Atari alone, which plays 60 frames a second; a game without a row in
    `atari_scores.csv` is not normalised.
    """
    titles = _SCORES if task.is_atari else {"score": "score_saber"}
    scores = {title: [float(getattr(record, name)) for record in records] for title, name in titles.items()}
    columns = [_statistics(values, task.scores) for values in scores.values()]
    lines = [(counted(len(records), "episode"), list(scores))]
    lines += [(f"  {label}", [_cell(column[label]) for column in columns]) for label in columns[0]]
    left = max(len(label) for label, _ in lines)
    width = max(len(text) for _, texts in lines for text in texts) + 2
    body = [f"{label:<{left}}" + "".join(f"{text:>{width}}" for text in texts) for label, texts in lines]
    notes = [*([acting] if acting else []), *_notes(records, action_repeat, task)]
    return "\n".join([*body, *(f"  {text}" for text in notes)])


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}"


def _statistics(values: Sequence[float], table: GameScores | None) -> dict[str, float | None]:
    """Return the statistics of scores by their labels, None for those that cannot be computed."""
    mean = fmean(values)
    interval = student_interval(values)
    found = {
        "mean": mean,
        "    95 % interval, from": interval and interval.low,
        "    to": interval and interval.high,
        "standard deviation": stdev(values) if len(values) > 1 else None,
        "median": median(values),
        "minimum": min(values),
        "maximum": max(values),
    }
    shares = {label: table.normalised(mean, name) for name, label in REFERENCES.items()} if table else {}
    return found | {
        f"mean, in % of the {label}": None if share is None else 100 * share for label, share in shares.items()
    }


def _notes(records: Sequence[EpisodeRecord], action_repeat: int, task: Task) -> list[str]:
    length = fmean(record.length for record in records)
    minutes = f", {length * action_repeat / FRAMES_PER_MINUTE:,.2f} minutes of game time" if task.is_atari else ""
    ends = Counter(record.end for record in records)
    notes = [
        f"length, mean: {length:,.2f} agent steps{minutes}",
        "ended by: " + ", ".join(f"{end} {count:,}" for end, count in sorted(ends.items())),
        "interval: Student's t, of the mean over episodes of this one snapshot; other training seeds vary more",
    ]
    if table := task.scores:
        known = {"0 % is random play": table.random, "100 % the human": table.human}
        known["or the world record"] = table.world_record
        texts = [f"{label} ({'unknown' if value is None else f'{value:,.12g}'})" for label, value in known.items()]
        notes.append("normalised: " + ", ".join(texts))
    return notes

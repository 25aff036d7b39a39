"""What an evaluation prints at its end: the three scores of SABER side by side, intervals, normalised scores."""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean, median, stdev
from typing import NamedTuple

from scipy.stats import t as student_t

from rainbow_iqn_apex.common.text import counted
from rainbow_iqn_apex.environments.scores import FRAMES_PER_MINUTE, EpisodeRecord
from rainbow_iqn_apex.saber.results.atari_scores import REFERENCES, GameScores
from rainbow_iqn_apex.saber.results.task import Task

LEVEL = 0.95  # of the interval
_SCORES = {"SABER score": "score_saber", "at 30 minutes": "score_30min", "at 5 minutes": "score_5min"}  # of Atari


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
    mean = fmean(values)
    margin = float(student_t.ppf((1 + LEVEL) / 2, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return Interval(mean - margin, mean + margin)


def format_evaluation(records: Sequence[EpisodeRecord], action_repeat: int, task: Task, acting: str = "") -> str:
    """Write the summary of at least one episode as a table, without a final newline.

    `action_repeat` is the number of frames per agent step, `acting` a sentence about how actions were chosen.
    SABER's scores and minutes are of Atari alone, which plays 60 frames a second; a game without a row in
    `atari_scores.csv` is not normalised.
    """
    table, titles = task.scores, _SCORES if task.is_atari else {"score": "score_saber"}
    scores = {title: [float(getattr(record, name)) for record in records] for title, name in titles.items()}
    columns = [_statistics(values, table) for values in scores.values()]
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
    mean, interval = fmean(values), student_interval(values)
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

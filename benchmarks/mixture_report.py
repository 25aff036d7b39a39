"""Compares the runs with mixed replay by variant: a table beside the figure of `mixture_plot`."""

import statistics
from collections.abc import Sequence

from scipy import stats

from benchmarks.mixture_plot import BASE, SMOOTHED, Run, Setting, Variants, grouped, last_scores

_FRAMES = 4  # of an agent step


def mixed_table(runs: Sequence[Run]) -> list[str]:
    """Return a line for each game, its rules and its variants; nothing if there are no such runs.

    The difference has Welch's interval of 95 % over the last episodes, pooled over seeds. It counts how much episodes
    differ, and not how much other seeds would.
    """
    head = (
        f"| game | rules | variant | seeds | frames | last {SMOOTHED} episodes | of each seed | after a third | "
        f"difference to {BASE}, 95 % over episodes |"
    )
    lines = [_line(setting, variant, variants) for setting, variants in grouped(runs).items() for variant in variants]
    return ["", head, "|" + "---|" * 9, *lines] if lines else []


def _line(setting: Setting, variant: str, variants: Variants) -> str:
    runs = variants[variant]
    frames = sorted({_FRAMES * run["agent_steps"] for run in runs})
    last = [_mean(last_scores(run, run["agent_steps"])) for run in runs]
    third = [_mean(last_scores(run, run["agent_steps"] / 3)) for run in runs]
    cells = [
        setting.game,
        setting.rules,
        variant,
        ", ".join(str(run["seed"]) for run in runs),
        ", ".join(f"{count:,}".replace(",", " ") for count in frames),
        _number(_mean(last)),
        ", ".join(map(_number, last)),
        _number(_mean(third)),
        _difference(runs, variants[BASE]) if variant != BASE and BASE in variants else "",
    ]
    return f"| {' | '.join(cells)} |"


def _difference(runs: Sequence[Run], others: Sequence[Run]) -> str:
    pooled = [[score for run in of for score in last_scores(run, run["agent_steps"])] for of in (runs, others)]
    if min(map(len, pooled)) < 2:
        return ""
    low, high = stats.ttest_ind(*pooled, equal_var=False).confidence_interval(0.95)
    return f"{_number(_mean(pooled[0]) - _mean(pooled[1]))} ({_number(low)} to {_number(high)})"


def _mean(values: Sequence[float]) -> float:
    """Return the mean; not a number of nothing."""
    return statistics.fmean(values) if values else float("nan")


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"

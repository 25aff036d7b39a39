"""Compares measured runs with their baselines: a table, and a plot of all curves."""

import json
import math
from pathlib import Path
from typing import Any

from benchmarks.learning_plot import draw
from benchmarks.learning_tasks import TASKS

Score = dict[str, Any]  # episodes, mean, standard_error (None of a single episode)


def report(results: Path, plot: Path) -> str:
    """Return a table of all runs in a folder, with Welch's t against the baselines of the same task.

    Draws `plot` of the Atari games: episodes of a few steps would be thousands of dots.
    """
    measured = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    runs = [result for result in measured if "last_episodes" in result]
    baselines = {result["game"]: result for result in measured if "best_constant_action" in result}
    if lacking := sorted({run["game"] for run in runs} - baselines.keys()):
        raise ValueError(f"there are no baselines of {', '.join(lacking)}: measure them first")
    plot.write_text(draw([run for run in runs if run["game"] not in TASKS], baselines))
    lines = [
        "| run | seed | agent steps | minutes | commit | last episodes | random | t | best constant action | t |",
        "|" + "---|" * 10,
    ]
    return "\n".join([*lines, *(_line(run, baselines[run["game"]]) for run in runs)])


def _line(result: dict[str, Any], baseline: dict[str, Any]) -> str:
    score, random, constant = result["last_episodes"], baseline["random"], baseline["best_constant_action"]
    cells = [
        f"{result['game']}, {result['configuration']}",
        str(result["seed"]),
        f"{result['agent_steps']:,}".replace(",", " "),
        f"{result['wall_clock_s'] / 60:.1f}",
        result["commit"],
        f"{score['episodes']}: {_number(score['mean'])} ± {_number(score['standard_error'] or math.nan)}",
        _number(random["mean"]),
        f"{welch(score, random):.1f}",
        _number(constant["mean"]),
        f"{welch(score, constant):.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    return f"{value:.0f}" if not abs(value) < 10 else f"{value:.2g}"


def welch(score: Score, other: Score) -> float:
    """Difference of two means in Welch standard errors; not a number if one is of a single episode."""
    if score["standard_error"] is None or other["standard_error"] is None:
        return math.nan
    error = math.hypot(score["standard_error"], other["standard_error"])
    return float((score["mean"] - other["mean"]) / error) if error else math.inf

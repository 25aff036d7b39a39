"""Compares measured runs with their baselines: a table, and a plot of all curves."""

import json
import math
from pathlib import Path
from typing import Any

from benchmarks.learning_plot import draw

Score = dict[str, Any]  # episodes, mean, standard_error (None of a single episode)


def report(results: Path, plot: Path) -> str:
    """A table of all runs in a folder, with Welch's t against the baselines of the same game; draws `plot`."""
    measured = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    runs = [result for result in measured if "last_episodes" in result]
    baselines = {result["game"]: result for result in measured if "best_constant_action" in result}
    if lacking := sorted({run["game"] for run in runs} - baselines.keys()):
        raise ValueError(f"there are no baselines of {', '.join(lacking)}: measure them first")
    plot.write_text(draw(runs, baselines))
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
        f"{score['episodes']}: {score['mean']:.0f} ± {score['standard_error'] or math.nan:.0f}",
        f"{random['mean']:.0f}",
        f"{welch(score, random):.1f}",
        f"{constant['mean']:.0f}",
        f"{welch(score, constant):.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def welch(score: Score, other: Score) -> float:
    """Difference of two means in Welch standard errors; not a number if one is of a single episode."""
    if score["standard_error"] is None or other["standard_error"] is None:
        return math.nan
    error = math.hypot(score["standard_error"], other["standard_error"])
    return float((score["mean"] - other["mean"]) / error) if error else math.inf

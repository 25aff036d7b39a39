"""Compares measured runs with their baselines: a table, and a plot of all curves."""

import json
import math
from pathlib import Path
from typing import Any

from benchmarks.learning_plot import draw


def report(results: Path, plot: Path) -> str:
    """A table of all runs in a folder, with Welch's t against the baselines of the same game; draws `plot`."""
    measured = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    baselines = {result["game"]: result for result in measured if result["configuration"] == "baselines"}
    lines = ["| run | seed | agent steps | minutes | last 20 episodes | random | t | best constant action | t |"]
    lines.append("|" + "---|" * 9)
    runs = [result for result in measured if result["configuration"] != "baselines" and result["game"] in baselines]
    plot.write_text(draw(runs, baselines))
    lines += [_line(result, baselines[result["game"]]) for result in runs]
    return "\n".join(lines)


def _line(result: dict[str, Any], baseline: dict[str, Any]) -> str:
    score, random, constant = result["last_episodes"], baseline["random"], baseline["best_constant_action"]
    cells = [
        f"{result['game']}, {result['configuration']}",
        str(result["seed"]),
        f"{result['agent_steps']:,}".replace(",", " "),
        f"{result['wall_clock_s'] / 60:.1f}",
        f"{score['mean']:.0f} ± {score['standard_error']:.0f}",
        f"{random['mean']:.0f}",
        f"{welch(score, random):.1f}",
        f"{constant['mean']:.0f}",
        f"{welch(score, constant):.1f}",
    ]
    return f"| {' | '.join(cells)} |"


def welch(score: dict[str, float], other: dict[str, float]) -> float:
    """Difference of two means in Welch standard errors."""
    error = math.hypot(score["standard_error"], other["standard_error"])
    return (score["mean"] - other["mean"]) / error if error else math.inf

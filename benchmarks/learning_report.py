"""Compares measured runs with their baselines: a table, and a plot of all curves."""

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scipy import stats

from benchmarks.learning_plot import save
from benchmarks.learning_tasks import CONFIGURATIONS, TASKS
from benchmarks.peer_tasks import PEERS

_MIXED, _PLAIN = "clear-", "-plain-"  # in names of configurations: mixed replay, and no sticky actions
Score = dict[str, Any]  # episodes, mean, standard_error (None of a single episode)


def report(results: Path, docs: Path) -> str:
    """Return a table of all runs in a folder, with Welch's t against the baselines of the same task.

    Draws learning.svg into `docs`, of the Atari games: episodes of a few steps would be thousands of dots. Runs with
    mixed replay are in the table alone; those without sticky actions have no baselines.
    """
    measured = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    found = [result for result in measured if "last_episodes" in result]
    runs = [run for run in found if not run["configuration"].startswith(_MIXED)]
    baselines = {result["game"]: result for result in measured if "best_constant_action" in result}
    if lacking := sorted({run["game"] for run in runs} - baselines.keys()):
        raise ValueError(f"there are no baselines of {', '.join(lacking)}: measure them first")
    save([run for run in runs if run["game"] not in TASKS], baselines, docs / "learning.svg")
    lines = [
        "| run | seed | agent steps | minutes | commit | last episodes | random | t | best constant action | t |",
        "|" + "---|" * 10,
    ]
    lines += [_line(run, None if _PLAIN in run["configuration"] else baselines.get(run["game"])) for run in found]
    return "\n".join([*lines, *comparison(runs)])


def _line(result: dict[str, Any], baseline: dict[str, Any] | None) -> str:
    score = result["last_episodes"]
    cells = [
        f"{result['game']}, {result['configuration']}",
        str(result["seed"]),
        f"{result['agent_steps']:,}".replace(",", " "),
        f"{result['wall_clock_s'] / 60:.1f}",
        result["commit"],
        cell(score),
    ]
    for name in ("random", "best_constant_action"):
        cells += [number(baseline[name]["mean"]), f"{welch(score, baseline[name]):.1f}"] if baseline else ["", ""]
    return f"| {' | '.join(cells)} |"


def comparison(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Return a table of ours beside Stable-Baselines3, over the seeds that both have run; empty if there are none.

    The difference has Welch's interval of 95 %, of the last episodes of all those seeds. Speeds are of whole runs.
    """
    found = {(run["configuration"], run["game"], run["seed"]): run for run in runs}
    lines = []
    for name, tasks in PEERS.items():
        for game, peer in tasks.items():
            seeds = [seed for of, task, seed in found if (of, task) == (name, game)]
            seeds = sorted(seed for seed in seeds if (peer.ours, game, seed) in found)
            if peer.ours and seeds:
                pairs = [(found[peer.ours, game, seed], found[name, game, seed]) for seed in seeds]
                lines.append(_compared(game, peer.ours, name, pairs))
    head = "| task | ours | peer | seeds | ours, last episodes | peer's | difference, 95 % | steps/s, ratio |"
    return ["", head, "|" + "---|" * 8, *lines] if lines else []


def _compared(game: str, ours: str, peer: str, pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    last = CONFIGURATIONS[ours].episodes
    scores = [[score for run in runs for _, score, _ in run["episodes"][-last:]] for runs in zip(*pairs, strict=True)]
    low, high = stats.ttest_ind(*scores, equal_var=False).confidence_interval(0.95)
    speeds = [[run["agent_steps"] / run["wall_clock_s"] for run in runs] for runs in zip(*pairs, strict=True)]
    ratios = [mine / other for mine, other in zip(*speeds, strict=True)]
    cells = [game, ours, peer, ", ".join(str(run["seed"]) for run, _ in pairs)]
    cells += [f"{len(of)}: {number(statistics.mean(of))}" for of in scores]
    cells.append(f"{number(statistics.mean(scores[0]) - statistics.mean(scores[1]))} ({low:.0f} to {high:.0f})")
    rates = " against ".join(f"{statistics.mean(of):.0f}" for of in speeds)
    cells.append(f"{rates}, {statistics.mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    return f"| {' | '.join(cells)} |"


def cell(score: Score) -> str:
    """Return how many episodes have a score, its mean and the standard error."""
    error = score["standard_error"]
    return f"{score['episodes']}: {number(score['mean'])} ± {number(math.nan if error is None else error)}"


def number(value: float) -> str:
    """Return a number with no more digits than it is known to."""
    return f"{value:.0f}" if not abs(value) < 10 else f"{value:.2g}"


def welch(score: Score, other: Score) -> float:
    """Return the difference of two means in Welch standard errors; not a number if one is of a single episode.

    Of scores that never vary it is infinite, or not a number where they are equal.
    """
    if score["standard_error"] is None or other["standard_error"] is None:
        return math.nan
    difference, error = score["mean"] - other["mean"], math.hypot(score["standard_error"], other["standard_error"])
    if not error:
        return math.copysign(math.inf, difference) if difference else math.nan
    return float(difference / error)

"""Draws measured runs: a panel for each game, with a curve for each run and lines for the baselines.

The runs of a configuration, which differ by their seeds, share its colour.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rainbow_iqn_apex.saber.report.svg import Axes, Figure, drawing_style, ticker

LAST = 20  # episodes that a point of a curve, and a score, is the mean of
MOST = 300  # dots of a run, and points of its curve: the committed file stays small

COLOURS = ("#2563eb", "#ea580c", "#059669", "#7c3aed", "#db2777", "#0891b2", "#ca8a04", "#4b5563")
_COLUMNS = 3  # of panels
_WIDTH, _HEIGHT, _LINE = 9.0, 2.1, 0.2  # inches: of all panels, of a panel, of a line of the legend
_LABELS = 4  # in a line of the legend
_BASELINES = {"random policy": ("random", "--"), "best constant action": ("best_constant_action", ":")}
STYLE = {
    "svg.fonttype": "none",  # texts stay texts
    "svg.hashsalt": "learning",  # equal results give equal files
    "font.size": 8,
    "axes.grid": True,
    "grid.color": "#e4e7ec",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlesize": 8,
    "savefig.dpi": 144,  # of the dots, which would be most of the file as shapes
}

Baseline = dict[str, Any]
T = TypeVar("T")


def save(runs: Sequence[dict[str, Any]], baselines: dict[str, Baseline], path: Path) -> None:
    """Write an SVG file of all runs, which are grouped by their game."""
    with drawing_style(STYLE):
        draw(runs, baselines).savefig(path, metadata={"Date": None})


def draw(runs: Sequence[dict[str, Any]], baselines: dict[str, Baseline]) -> Figure:
    """Draw all runs, each in the panel of its game."""
    games = list(dict.fromkeys(run["game"] for run in runs))
    names = Counter(run["configuration"] for run in runs).most_common()
    colours = {name: COLOURS[i % len(COLOURS)] for i, (name, _) in enumerate(names)}
    rows, legend_lines = -(-len(games) // _COLUMNS), 1 + -(-(len(names) + len(_BASELINES)) // _LABELS)
    figure = Figure(figsize=(_WIDTH, rows * _HEIGHT + legend_lines * _LINE), layout="constrained")
    for number, game in enumerate(games):
        axes = figure.add_subplot(rows, _COLUMNS, number + 1)
        _panel(axes, game, [run for run in runs if run["game"] == game], baselines[game], colours)
    named = {line.get_label(): line for axes in figure.axes for line in axes.lines}
    labels = [*colours, *_BASELINES]
    text = f"training scores against agent steps: the mean of the last {LAST} episodes, and single episodes as dots"
    figure.legend(
        [named[label] for label in labels], labels, title=text, loc="outside lower left", alignment="left",
        ncols=_LABELS, frameon=False,
    )  # fmt: skip
    return figure


def _panel(axes: Axes, game: str, runs: Sequence[dict[str, Any]], baseline: Baseline, colours: dict[str, str]) -> None:
    axes.set_title(game.replace("_", " "))
    for run in runs:
        name = run["configuration"]
        steps, scores, _ = np.array(few(run["episodes"])).T
        axes.scatter(steps, scores, s=3, color=colours[name], alpha=0.3, linewidth=0, rasterized=True)
        points = np.array(few(curve(run["episodes"]))).reshape(-1, 2)  # none of a run with fewer episodes than LAST
        axes.plot(*points.T, color=colours[name], linewidth=1.3, label=name)
    for label, (key, style) in _BASELINES.items():
        axes.axhline(baseline[key]["mean"], color="#475467", linewidth=1.1, linestyle=style, label=label)
    low, high = axes.get_ylim()
    axes.set(xlim=(0, max(run["agent_steps"] for run in runs)), ylim=(min(0, low), max(0, high)))
    axes.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
    axes.yaxis.set_major_formatter("{x:,.0f}")


def few(values: Sequence[T]) -> list[T]:
    """Return MOST values at most, evenly spread, the first and the last among them."""
    if len(values) <= MOST:
        return list(values)
    return [values[i * (len(values) - 1) // (MOST - 1)] for i in range(MOST)]


def curve(episodes: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """Return the mean score of the last episodes, at each episode's end."""
    scores = [episode[1] for episode in episodes]
    return [(episodes[i][0], sum(scores[i + 1 - LAST : i + 1]) / LAST) for i in range(LAST - 1, len(scores))]

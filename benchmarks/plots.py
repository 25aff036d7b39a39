"""Draws measured runs as grids of panels, one for each game: curves of training scores, and half hours of learning."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rainbow_iqn_apex.saber.report.svg import Axes, Picture, drawing_style, ticker
from rainbow_iqn_apex.saber.results.task import GameScores

LAST = 20  # episodes that a point of a curve, and a score, is the mean of
MOST = 300  # dots of a run, and points of its curve: the committed file stays small

COLOURS = ("#2563eb", "#ea580c", "#059669", "#7c3aed", "#db2777", "#0891b2", "#ca8a04", "#4b5563")
_GREY = "#475467"  # of lines that scores are compared with
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


def save(figure: Callable[[], Picture], path: Path) -> None:
    """Write an SVG file of what `figure` draws, in the style of all."""
    with drawing_style(STYLE):
        figure().savefig(path, metadata={"Date": None})


def draw(runs: Sequence[dict[str, Any]], baselines: dict[str, Baseline]) -> Picture:
    """Draw training scores, with lines for the baselines; the seeds of a configuration share its colour."""
    games = list(dict.fromkeys(run["game"] for run in runs))
    names = Counter(run["configuration"] for run in runs).most_common()
    colours = {name: COLOURS[i % len(COLOURS)] for i, (name, _) in enumerate(names)}
    figure, panels = _grid(games, columns=3, size=(9.0, 2.1), legend=0.2 + 0.2 * -(-(len(names) + 2) // _LABELS))
    for game, axes in panels.items():
        _draw_scores(axes, [run for run in runs if run["game"] == game], baselines[game], colours)
    named = {line.get_label(): line for axes in figure.axes for line in axes.lines}
    labels = [*colours, *_BASELINES]
    figure.legend(
        [named[label] for label in labels],
        labels,
        title=f"training scores against agent steps: the mean of the last {LAST} episodes, and single episodes as dots",
        loc="outside lower left",
        alignment="left",
        ncols=_LABELS,
        frameon=False,
    )
    return figure


def draw_half_hours(
    runs: Sequence[dict[str, Any]], random: dict[str, float], published: dict[str, GameScores]
) -> Picture:
    """Draw what half an hour of two cores learned, with random play's scores and the published human ones."""
    games = sorted({run["game"] for run in runs})
    colours = dict(zip(sorted({run["seed"] for run in runs}), cycle(COLOURS), strict=False))
    figure, panels = _grid(games, columns=4, size=(10.0, 1.9), legend=0.3)
    for game, axes in panels.items():
        human = published[game].human
        shown = [run for run in runs if run["game"] == game]
        _draw_minutes(axes, shown, colours, {"random play": random[game], "a human": human})
        if human:
            axes.set_title(f"{axes.get_title('left')} (a human: {number(human)})")
    named = {str(line.get_label()): line for axes in figure.axes for line in axes.get_legend_handles_labels()[0]}
    figure.legend(list(named.values()), list(named), loc="outside lower left", ncols=len(named), frameon=False)
    return figure


def _grid(
    games: Sequence[str], *, columns: int, size: tuple[float, float], legend: float
) -> tuple[Picture, dict[str, Axes]]:
    """Return a figure with a panel for each game; `size` is the width of all and the height of one row, in inches."""
    rows = -(-len(games) // columns)
    width, height = size
    figure = Picture(figsize=(width, rows * height + legend), layout="constrained")
    panels = {game: figure.add_subplot(rows, columns, place) for place, game in enumerate(games, 1)}
    for game, axes in panels.items():
        axes.set_title(game.replace("_", " "))
        axes.yaxis.set_major_formatter("{x:,.0f}")
    return figure, panels


def _draw_scores(axes: Axes, runs: Sequence[dict[str, Any]], baseline: Baseline, colours: dict[str, str]) -> None:
    for run in runs:
        name = run["configuration"]
        steps, scores, _ = np.array(few(run["episodes"])).T
        axes.scatter(steps, scores, s=3, color=colours[name], alpha=0.3, linewidth=0, rasterized=True)
        points = np.array(few(curve(run["episodes"]))).reshape(-1, 2)  # none of a run with fewer episodes than LAST
        axes.plot(*points.T, color=colours[name], linewidth=1.3, label=name)
    for label, (key, style) in _BASELINES.items():
        axes.axhline(baseline[key]["mean"], color=_GREY, linewidth=1.1, linestyle=style, label=label)
    low, high = axes.get_ylim()
    axes.set(xlim=(0, max(run["agent_steps"] for run in runs)), ylim=(min(0, low), max(0, high)))
    axes.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))


def _draw_minutes(
    axes: Axes, runs: Sequence[dict[str, Any]], colours: dict[int, str], compared: dict[str, float | None]
) -> None:
    """Draw a game's runs; a score to compare with has a line if that leaves the curves half of the height."""
    for run in runs:
        colour = colours[run["seed"]]
        steps, scores = np.array(run["curve"]).T
        minutes = steps / run["agent_steps"] * run["minutes"]
        axes.plot(minutes, scores, color=colour, linewidth=1.3, label=f"training episodes, seed {run['seed']}")
        played = run["evaluation"]
        label = f"{played['episodes']} episodes of the last weights"
        point = (run["minutes"], played["mean"], played["standard_error"])
        axes.errorbar(*point, color=colour, fmt="o", markersize=4, label=label, clip_on=False)
    top = axes.get_ylim()[1]
    for (label, score), style in zip(compared.items(), (":", "--"), strict=True):
        if score is not None and score < 2 * top:
            axes.axhline(score, color=_GREY, linewidth=1.1, linestyle=style, label=label)
    axes.set(xlim=(0, max(run["minutes"] for run in runs)), ylim=(0, None))
    axes.xaxis.set_major_locator(ticker.MultipleLocator(10))
    axes.xaxis.set_major_formatter("{x:.0f} min")


def few(values: Sequence[T]) -> list[T]:
    """Return MOST values at most, evenly spread, the first and the last among them."""
    if len(values) <= MOST:
        return list(values)
    return [values[i * (len(values) - 1) // (MOST - 1)] for i in range(MOST)]


def curve(episodes: Sequence[Sequence[float]]) -> list[tuple[float, float]]:
    """Return the mean score of the last episodes, at each episode's end."""
    scores = [episode[1] for episode in episodes]
    return [(episodes[i][0], sum(scores[i + 1 - LAST : i + 1]) / LAST) for i in range(LAST - 1, len(scores))]


def number(value: float) -> str:
    """Return a number with no more digits than it is known to."""
    return f"{value:.0f}" if not abs(value) < 10 else f"{value:.2g}"

"""Draws what half an hour of two cores learned: a panel for each game, beside random play and a human."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.learning_plot import COLOURS, STYLE
from benchmarks.learning_report import number
from rainbow_iqn_apex.saber.report.svg import Axes, Figure, drawing_style, ticker
from rainbow_iqn_apex.saber.results.task import GameScores

_COLUMNS = 4  # of panels
_WIDTH, _HEIGHT, _LINE = 10.0, 1.9, 0.3  # inches: of all panels, of a panel, of the legend


def save(
    runs: Sequence[dict[str, Any]], random: dict[str, float], published: dict[str, GameScores], path: Path
) -> None:
    """Write an SVG file of runs, with random play's scores and the published human ones, by game."""
    games = sorted({run["game"] for run in runs})
    colours = dict(zip(sorted({run["seed"] for run in runs}), cycle(COLOURS), strict=False))
    rows = -(-len(games) // _COLUMNS)
    with drawing_style(STYLE):
        figure = Figure(figsize=(_WIDTH, rows * _HEIGHT + _LINE), layout="constrained")
        for place, game in enumerate(games, 1):
            axes = figure.add_subplot(rows, _COLUMNS, place)
            human = published[game].human
            shown = [run for run in runs if run["game"] == game]
            _panel(axes, shown, colours, {"random play": random[game], "a human": human})
            axes.set_title(game.replace("_", " ") + (f" (a human: {number(human)})" if human else ""))
        named = {str(line.get_label()): line for axes in figure.axes for line in axes.get_legend_handles_labels()[0]}
        figure.legend(list(named.values()), list(named), loc="outside lower left", ncols=len(named), frameon=False)
        figure.savefig(path, metadata={"Date": None})


def _panel(
    axes: Axes, runs: Sequence[dict[str, Any]], colours: dict[int, str], compared: dict[str, float | None]
) -> None:
    """Draw a game's runs; a score to compare with has a line if that leaves the curves half of the height."""
    for run in runs:
        colour = colours[run["seed"]]
        steps, scores = np.array(run["curve"]).T
        minutes = steps / run["agent_steps"] * run["minutes"]
        axes.plot(minutes, scores, color=colour, linewidth=1.3, label=f"training episodes, seed {run['seed']}")
        played = run["evaluation"]
        axes.errorbar(
            run["minutes"], played["mean"], played["standard_error"], color=colour, fmt="o", markersize=4,
            label=f"{played['episodes']} episodes of the last weights", clip_on=False,
        )  # fmt: skip
    top = axes.get_ylim()[1]
    for (label, score), style in zip(compared.items(), (":", "--"), strict=True):
        if score is not None and score < 2 * top:
            axes.axhline(score, color="#475467", linewidth=1.1, linestyle=style, label=label)
    axes.set(xlim=(0, max(run["minutes"] for run in runs)), ylim=(0, None))
    axes.xaxis.set_major_locator(ticker.MultipleLocator(10))
    axes.xaxis.set_major_formatter("{x:.0f} min")
    axes.yaxis.set_major_formatter("{x:,.0f}")

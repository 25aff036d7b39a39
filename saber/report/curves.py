"""The plots of training curves: every run, and the mean of each agent's runs."""

from typing import Any

import numpy as np

from rainbow_iqn_apex.saber.report.results import Game, Results
from rainbow_iqn_apex.saber.report.styles import AXIS, EDGE, Figure, agent_colour, agent_line, legend_text, line
from rainbow_iqn_apex.saber.results.colours import band
from rainbow_iqn_apex.saber.results.reference_lines import reference_lines
from rainbow_iqn_apex.saber.results.task import Task


def curve_figure(results: Results, task: Task) -> Figure:
    """The curves of all agents that have played a game, with lines of the random agent, the human and the record."""
    data: list[Figure] = []
    for number, agent in enumerate(results.agents):
        if game := agent.games.get(task):
            data += _agent_curves(game, agent.name if len(results.agents) > 1 else "", number)
    scores = [value for trace in data for value in trace["y"] if value is not None]
    lines = reference_lines(task.scores, min(scores), max(scores))
    layout = {
        "meta": [task.title, lines.caption],  # headings, which stand above the plot
        "xaxis": {
            **AXIS,
            "title": {"text": "frames" if task.is_atari else "agent steps"},
            "rangemode": "tozero",
            "nticks": 5,
        },
        "yaxis": {**AXIS, **lines.y_axis, "title": {"text": "score"}, "nticks": 6},
        "shapes": lines.shapes,
        "hovermode": "x",
        "dragmode": False,
        "showlegend": False,
        "margin": {"l": 10, "r": 14, "t": 10, "b": 10},
    }
    return {"data": data, "layout": layout}


def _agent_curves(game: Game, agent: str, number: int) -> list[Figure]:
    """Every run as a thin line; where two or more have one, their mean and a band from the lowest to the highest."""
    frames, runs = game.curves
    having = (~np.isnan(runs)).sum(0)  # [points]
    mean = np.where(having >= min(2, len(runs)), np.nansum(runs, 0) / np.maximum(1, having), np.nan)
    colour = agent_colour(number)
    data: list[Figure] = []
    if len(runs) > 1:
        high, low = (np.where(np.isnan(mean), np.nan, bound) for bound in (np.fmax.reduce(runs), np.fmin.reduce(runs)))
        data.append(line(_named(agent, "highest run"), frames, high, **EDGE))
        fill = {"fill": "tonexty", "fillcolor": band(colour)}
        data.append(line(_named(agent, "lowest to highest run"), frames, low, **EDGE, **fill))
        thin: dict[str, Any] = {"line": {"width": 1, "color": colour}, "opacity": 0.45, "showlegend": False}
        data += [
            line(_named(agent, _run_name(game, index)), frames, values, **thin) for index, values in enumerate(runs)
        ]
    name = f"mean of {'up to ' * (len(runs) > 2)}{len(runs)} runs" if len(runs) > 1 else _run_name(game, 0)
    unit = "frames" if game.task.is_atari else "steps"
    text = f"%{{fullData.name}}<br>%{{x:.4s}} {unit}<br>score %{{y:,.1f}}<extra></extra>"
    shown = {"hovertemplate": text, "mode": "lines" if len(frames) > 30 else "lines+markers"}
    data.append(line(_named(agent, name), frames, mean, line=agent_line(number), **shown))
    return data


def _named(agent: str, text: str) -> str:
    return legend_text(f"{agent}:", text) if agent else legend_text(text)


def _run_name(game: Game, number: int) -> str:
    seed = game.runs[number].settings.get("seed")
    return f"run {number + 1}" if seed is None else f"seed {seed}"

"""The plots of a report, as plotly takes them."""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import cycle
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np

from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.saber.report.aggregates import Profile
from rainbow_iqn_apex.saber.report.results import (
    CUT,
    FLOOR,
    THRESHOLDS,
    WHOLE,
    Agent,
    Game,
    Results,
    published_normalised,
)
from rainbow_iqn_apex.saber.results.figure import AGENTS, LIGHT, PUBLISHED, REFERENCE, band, reference_lines
from rainbow_iqn_apex.saber.results.task import COLUMNS, REFERENCES, Column, Task, format_frames

Figure = dict[str, Any]

AXIS = {"zeroline": False, "automargin": True, "showline": True, "ticks": "outside", "fixedrange": True}
EDGE = {"mode": "lines", "line": {"width": 0}, "showlegend": False}  # of a band
_SYMBOLS = ("diamond", "square", "cross", "x", "triangle-up", "star", "pentagon", "hexagon", "triangle-down")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_TURNS = (("solid", "circle"), ("dash", "square"), ("dot", "diamond"))  # of ours, each with all colours
_LEGEND_WIDTH = 56  # characters that fit beside a line's sample on a telephone


class Style(NamedTuple):
    """How a published agent is drawn."""

    marker: Figure
    line: Figure


def published_styles(columns: Iterable[Column]) -> list[Style]:
    """Neighbours differ in colour, symbol and dashes; with more agents than colours, in one of them at least."""
    styles = []
    parts = zip(columns, cycle(PUBLISHED), cycle(_SYMBOLS), cycle(_DASHES), strict=False)
    for number, (_, colour, symbol, dash) in enumerate(parts):
        marker = {"symbol": symbol + "-open" * (number >= len(_SYMBOLS)), "size": 7, "color": colour.light}
        styles.append(Style(marker, {"width": 1.5, "color": colour.light, "dash": dash, "shape": "hv"}))
    return styles


def agent_line(number: int) -> Figure:
    """The line of our agent of this number."""
    return {"width": 2.5, "color": agent_colour(number), "dash": _turn(number)[0]}


def agent_symbol(number: int) -> str:
    """The symbol of our agent of this number."""
    return _turn(number)[1]


def _turn(number: int) -> tuple[str, str]:
    return _TURNS[number // len(AGENTS) % len(_TURNS)]


def agent_colour(number: int) -> str:
    """The colour of our agent of this number."""
    return AGENTS[number % len(AGENTS)].light


def line(name: str, x: Array, y: Array, **style: Any) -> Figure:
    """A line through the points, with a gap where y is nan."""
    return {
        "type": "scatter",
        "name": name,
        "x": [float(f"{value:.9g}") for value in x],
        "y": plain(y),
        "mode": "lines",
        "hoverinfo": "skip",
        **style,
    }


def legend_text(*parts: str) -> str:
    """Write the parts as one line of a legend, or each in lines of its own if they are too long for one."""
    whole = " ".join(parts)
    lines = [whole]
    if len(whole) > _LEGEND_WIDTH:
        lines = [line for part in parts for line in wrap(part, _LEGEND_WIDTH, break_on_hyphens=False)]
    return "<br>".join(map(plain_text, lines))


def plain_text(text: str) -> str:
    """The text as plotly shows it: tags in it, as in names of files, are none."""
    return escape(text, quote=False)


def count_lines(names: Sequence[str]) -> int:
    """Lines that these names take in a legend."""
    return sum(1 + name.count("<br>") for name in names)


def plain(values: Array) -> list[float | None]:
    """Numbers [n] as JSON takes them, to six digits; None for nan."""
    return [None if np.isnan(value) else float(f"{value:.6g}") for value in values]


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


_TICKS = {"tickvals": [0.001, 0.01, 0.1, 1, 10, 100], "ticktext": ["0.1 %", "1 %", "10 %", "100 %", "10³ %", "10⁴ %"]}
_AT_REFERENCE = {"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1}
_AT_REFERENCE |= {"line": {"width": 1, "dash": "dash", "color": REFERENCE.light}}
# At the top of its element, which keeps it off the plot however its lines break.
_LEGEND = {"orientation": "h", "traceorder": "normal", "x": 0, "xref": "container"}
_LEGEND |= {"y": 1, "yref": "container", "yanchor": "top", "maxheight": 1}  # beyond half of it, it would scroll


def all_figures(results: Results) -> dict[str, Figure]:
    """Every plot by the id of its element in the page."""
    curves = {f"curve-{number}": curve_figure(results, task) for number, task in enumerate(results.tasks)}
    return normalised_figures(results) | curves


def normalised_figures(results: Results) -> dict[str, Figure]:
    """Plots of normalised scores, by the ids of their elements, if games have a score in common at a mark."""
    figures: dict[str, Figure] = {}
    if results.mark is not None:
        for reference in results.profiles:
            figures[f"bars-{reference}"] = bar_figure(results, results.mark, reference)
            figures[f"profile-{reference}"] = profile_figure(results, results.mark, reference)
    return figures


def bar_figure(results: Results, mark: int, reference: str) -> Figure:
    """Normalised score of each game on a logarithmic axis, highest first.

    One agent of ours has bars, several have points. Markers show what compares with published agents: ours at 30
    minutes, where most of their episodes were cut, and those agents.
    """
    agents = results.compared(mark)
    ours = {agent.name: _means(agent, mark, WHOLE, reference) for agent in agents}
    best = {task: max(scores.get(task, -np.inf) for scores in ours.values()) for one in ours.values() for task in one}
    tasks = sorted(best, key=lambda task: best[task])  # plotly draws upwards
    data: list[Figure] = []
    for agent in agents:
        number = results.agents.index(agent)
        name, scores = score_name(results, agent, mark, WHOLE), ours[agent.name]
        data.append(_bars(name, tasks, scores) if len(agents) == 1 else _dots(name, tasks, scores, number))
        cut = _means(agent, mark, CUT, reference)
        data.append(_points(score_name(results, agent, mark, CUT), tasks, cut, _open_marker(number)))
    for column, style in zip(COLUMNS, published_styles(COLUMNS.values()), strict=True):
        found = {task: published_normalised(task, column, reference) for task in tasks}
        scores = {task: score for task, score in found.items() if score is not None}
        data.append(_points(COLUMNS[column].label, tasks, scores, style.marker) | _visible(results, mark, column))
    data = [trace for trace in data if trace["x"]]
    reach = max([1.0, *(max(trace["x"]) for trace in data)])
    titles = [plain_text(task.title) for task in tasks]
    y_axis = {"tickmode": "linear", "range": [-0.6, len(tasks) - 0.4], "type": "category"}
    y_axis |= {"categoryorder": "array", "categoryarray": titles}
    return _comparison(data, reference, reach * 1.25, y_axis, 130 + 17 * max(4, len(tasks)))


def _means(agent: Agent, mark: int, limit: str, reference: str) -> dict[Task, float]:
    return {task: float(scores.mean()) for task, scores in agent.normalised(mark, limit, reference).items()}


def _bars(name: str, tasks: list[Task], scores: dict[Task, float]) -> Figure:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [plain_text(task.title) for task in tasks],
        "x": [max(FLOOR, scores[task]) for task in tasks],
        "text": [f"{100 * scores[task]:,.1f} %" for task in tasks],
        "textposition": "none",
        "hovertemplate": "%{y}: %{text}<extra>this report</extra>",
        "marker": {"color": agent_colour(0), "opacity": 0.35},  # behind markers of all colours
    }


def _dots(name: str, tasks: list[Task], scores: dict[Task, float], number: int) -> Figure:
    marker = {"symbol": agent_symbol(number), "size": 11, "color": agent_colour(number)}
    return _points(name, tasks, scores, marker)


def _open_marker(number: int) -> Figure:
    edge = {"width": 1.5, "color": agent_colour(number)}
    return {"symbol": agent_symbol(number), "size": 8, "color": LIGHT["paper"], "line": edge}


def profile_figure(results: Results, mark: int, reference: str) -> Figure:
    """Fraction of games and runs above each normalised score (Agarwal et al. 2021), with the bootstrap's band; ours at
    30 minutes, too, to compare with published agents.
    """
    profiles = results.profiles[reference]
    data: list[Figure] = []
    for agent in results.compared(mark):
        number = results.agents.index(agent)
        ours = profiles.ours[agent.name]
        data += _profile_band(agent, ours[WHOLE], number)
        stroke = agent_line(number) | {"shape": "hv"}
        data.append(_profile(score_name(results, agent, mark, WHOLE), ours[WHOLE], stroke))
        data.append(
            _profile(score_name(results, agent, mark, CUT), ours[CUT], stroke | {"width": 1.5, "dash": "dashdot"})
        )
    for column, style in zip(COLUMNS, published_styles(COLUMNS.values()), strict=True):
        if published := profiles.published.get(column):
            data.append(_profile(COLUMNS[column].label, published, style.line) | _visible(results, mark, column))
    y_axis = {"title": {"text": "fraction above"}, "range": [-0.02, 1.02], "tickformat": ".0%"}
    return _comparison(data, reference, 110, y_axis, 400)


def _profile(name: str, found: Profile, stroke: Figure) -> Figure:
    return line(name, THRESHOLDS, found.fraction, line=stroke, hoverinfo="x+y+name")


def _profile_band(agent: Agent, found: Profile, number: int) -> list[Figure]:
    if found.low is None or found.high is None:
        return []
    edge = {**EDGE, "line": {"width": 0, "shape": "hv"}}
    fill = {"fill": "tonexty", "fillcolor": band(agent_colour(number))}
    return [
        line(f"{plain_text(agent.name)}: 95 % interval, upper", THRESHOLDS, found.high, **edge),
        line(f"{plain_text(agent.name)}: 95 % interval, lower", THRESHOLDS, found.low, **edge, **fill),
    ]


def score_name(results: Results, agent: Agent, mark: int, limit: str) -> str:
    """Return the name of an agent's scores at a mark and a limit where published ones stand beside them."""
    rules = f"({agent.group.protocols.label}, {format_frames(mark)})"
    return legend_text(f"{agent.name}, {results.protocols.limit_name(limit)}", rules)


def _visible(results: Results, mark: int, column: str) -> Figure:
    """Return whether a published agent is drawn before its name in the legend is clicked: if it compares with our runs.

    It does if it has played the same task, for as many frames.
    """
    published = COLUMNS[column]
    compares = results.protocols.equal(published.protocol) and published.frames == mark
    return {"visible": True if compares else "legendonly"}


def _points(name: str, tasks: list[Task], scores: dict[Task, float], marker: Figure) -> Figure:
    """A score for each of the games that have one which the axis shows."""
    shown = [task for task in tasks if scores.get(task, 0) >= FLOOR]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "y": [plain_text(task.title) for task in shown],
        "x": [float(f"{scores[task]:.6g}") for task in shown],
        "marker": marker,
    }


def _comparison(data: list[Figure], reference: str, reach: float, y_axis: Figure, height: int) -> Figure:
    """A wide plot against normalised scores up to `reach`; `height` is in pixels, without the legend."""
    x_range = [float(np.log10(FLOOR)), float(np.log10(reach))]
    title = {"text": f"score, 100 % = {REFERENCES[reference]}"}
    names = [trace["name"] for trace in data if trace.get("showlegend", True)]
    layout = {
        "xaxis": {**AXIS, "title": title, "type": "log", "range": x_range, **_TICKS, "tickangle": 0},
        "yaxis": AXIS | y_axis,
        "height": height + 19 * count_lines(names),
        "shapes": [_AT_REFERENCE],
        "dragmode": False,
        "hovermode": "closest",
        "legend": _LEGEND,
        "margin": {"l": 10, "r": 14, "t": 30, "b": 10},
    }
    return {"data": data, "layout": layout}

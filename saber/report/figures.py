"""The plots of a report, as plotly takes them."""

from collections.abc import Iterable
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np

from memory.rows import Array
from saber.atari_scores import COLUMNS, NO_OP, REFERENCES, STICKY, Column
from saber.page import BAND, BLUE, ORANGE, TEAL, game_title
from saber.report.results import CUT, FLOOR, THRESHOLDS, WHOLE, Game, Results, plain

Figure = dict[str, Any]

PALE = "rgba(59,130,214,0.45)"
_PURPLE = "#9a6fd0"
_COLOURS = {STICKY: ORANGE, NO_OP: TEAL}  # of published agents by protocol
_OUR_MARKER = {"symbol": "circle", "size": 9, "color": "#ffffff", "line": {"width": 1.5, "color": BLUE}}
_SYMBOLS = ("circle", "diamond", "square", "cross", "x", "triangle-up", "star", "pentagon", "hexagon")
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_AXIS = {"zeroline": False, "automargin": True, "showline": True, "ticks": "outside", "fixedrange": True}
_TICKS = {"tickvals": [0.001, 0.01, 0.1, 1, 10, 100], "ticktext": ["0.1 %", "1 %", "10 %", "100 %", "10³ %", "10⁴ %"]}
_AT_REFERENCE = {"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1}
# At the top of its element, which keeps it off the plot however its lines break.
_LEGEND = {"orientation": "h", "traceorder": "normal", "x": 0, "xref": "container"}
_LEGEND |= {"y": 1, "yref": "container", "yanchor": "top", "maxheight": 1}  # beyond half of it, it would scroll
_LEGEND_WIDTH = 56  # characters that fit beside a line's sample on a telephone
_EDGE = {"mode": "lines", "line": {"width": 0}}  # of a band


def all_figures(results: Results) -> dict[str, Figure]:
    """Every plot by the id of its element in the page: normalised ones if a game has a score at a mark."""
    figures: dict[str, Figure] = {}
    if results.mark is not None:
        for reference in results.profiles:
            figures[f"bars-{reference}"] = bar_figure(results, results.mark, reference)
            figures[f"profile-{reference}"] = profile_figure(results, results.mark, reference)
    return figures | {f"curve-{number}": curve_figure(game) for number, game in enumerate(results.games)}


def curve_figure(game: Game) -> Figure:
    """Every run as a thin line; where all runs have one, their mean and a band from the lowest to the highest."""
    frames, runs = game.curves
    mean = runs.mean(0)  # nan where a run has nothing
    data: list[Figure] = []
    if len(runs) > 1:
        data.append(_line("highest run", frames, np.where(np.isnan(mean), np.nan, runs.max(0)), **_EDGE))
        low = np.where(np.isnan(mean), np.nan, runs.min(0))
        data.append(_line("lowest to highest run", frames, low, **_EDGE, fill="tonexty", fillcolor=BAND))
        data += [
            _line(_run_name(game, number), frames, values, line={"width": 1, "color": PALE})
            for number, values in enumerate(runs)
        ]
    name = f"mean of {len(runs)} runs" if len(runs) > 1 else _run_name(game, 0)
    text = [
        f"{name}<br>{frame / 1e6:.2f} M frames<br>score {score:,.1f}" for frame, score in zip(frames, mean, strict=True)
    ]
    shown = {"hoverinfo": "text", "hovertext": text, "mode": "lines" if len(frames) > 30 else "lines+markers"}
    data.append(_line(name, frames, mean, line={"width": 2.5, "color": BLUE}, **shown))
    layout = {
        "title": {"text": game_title(game.name), "x": 0.02, "xanchor": "left", "font": {"size": 14}},
        "xaxis": {**_AXIS, "title": {"text": "frames"}, "rangemode": "tozero", "nticks": 5},
        "yaxis": {**_AXIS, "nticks": 6},
        "hovermode": "x",
        "dragmode": False,
        "showlegend": False,
        "margin": {"l": 10, "r": 14, "t": 34, "b": 10},
    }
    return {"data": data, "layout": layout}


def bar_figure(results: Results, mark: int, reference: str) -> Figure:
    """Normalised score of each game on a logarithmic axis, highest first; markers show what compares with each other:
    ours at 30 minutes, where most published agents' episodes were cut, and those agents.
    """
    ours = {game: float(scores.mean()) for game, scores in results.normalised(mark, WHOLE, reference).items()}
    games = sorted(ours, key=lambda game: ours[game])  # plotly draws upwards
    values = [ours[game] for game in games]
    data: list[Figure] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": _our_name(results, mark, WHOLE),
            "y": [game_title(game) for game in games],
            "x": [max(FLOOR, value) for value in values],
            "text": [f"{100 * value:,.1f} %" for value in values],
            "textposition": "none",
            "hovertemplate": "%{y}: %{text}<extra>this report</extra>",
            "marker": {"color": BLUE},
        }
    ]
    cut = {game: float(scores.mean()) for game, scores in results.normalised(mark, CUT, reference).items()}
    data.append(_points(_our_name(results, mark, CUT), games, cut, _OUR_MARKER))
    for column, style in zip(COLUMNS, published_styles(COLUMNS.values()), strict=True):
        scores = results.published(column, mark, reference)
        data.append(_points(COLUMNS[column].label, games, scores, style.marker) | _visible(results, column))
    data = [trace for trace in data if trace["x"]]
    reach = max(1.0, *(max(trace["x"]) for trace in data))
    y_axis = {"tickmode": "linear", "range": [-0.6, len(games) - 0.4]}
    return _comparison(data, reference, reach * 1.25, y_axis, 130 + 17 * max(4, len(games)))


def profile_figure(results: Results, mark: int, reference: str) -> Figure:
    """Fraction of games and runs above each normalised score (Agarwal et al. 2021), with the bootstrap's band; ours at
    30 minutes, too, to compare with published agents.
    """
    profiles = results.profiles[reference]
    fraction, low, high = profiles.ours[WHOLE]
    data: list[Figure] = []
    if low is not None and high is not None:
        data.append(_line("95 % interval, upper", THRESHOLDS, high, **_EDGE, showlegend=False))
        data.append(
            _line("95 % interval, lower", THRESHOLDS, low, **_EDGE, showlegend=False, fill="tonexty", fillcolor=BAND)
        )
    shown = {"hoverinfo": "x+y+name"}
    name = _our_name(results, mark, WHOLE)
    data.append(_line(name, THRESHOLDS, fraction, line={"width": 2.5, "color": BLUE}, **shown))
    name, line = _our_name(results, mark, CUT), {"width": 2, "color": BLUE, "dash": "dash"}
    data.append(_line(name, THRESHOLDS, profiles.ours[CUT].fraction, line=line, **shown))
    for column, style in zip(COLUMNS, published_styles(COLUMNS.values()), strict=True):
        if published := profiles.published.get(column):
            line = _line(COLUMNS[column].label, THRESHOLDS, published.fraction, line=style.line, **shown)
            data.append(line | _visible(results, column))
    y_axis = {"title": {"text": "fraction above"}, "range": [-0.02, 1.02], "tickformat": ".0%"}
    return _comparison(data, reference, 110, y_axis, 400)


def _our_name(results: Results, mark: int, limit: str) -> str:
    name = results.protocols.score_name(mark, limit)
    return name if len(name) <= _LEGEND_WIDTH else name.replace(" (", "<br>(", 1)


class Style(NamedTuple):
    """How a published agent is drawn."""

    marker: Figure
    line: Figure


def published_styles(columns: Iterable[Column]) -> list[Style]:
    """Colours tell protocols apart; symbols and dashes tell agents apart, in turn."""
    styles = []
    for column, symbol, dash in zip(columns, cycle(_SYMBOLS), cycle(_DASHES), strict=False):
        colour = _COLOURS.get(column.protocol, _PURPLE)
        styles.append(
            Style({"symbol": symbol, "size": 7, "color": colour}, {"width": 1.5, "color": colour, "dash": dash})
        )
    return styles


def _visible(results: Results, column: str) -> Figure:
    """Other tasks than that of our runs are drawn when their name in the legend is clicked."""
    return {"visible": True if results.protocols.equal(COLUMNS[column].protocol) else "legendonly"}


def _points(name: str, games: list[str], scores: dict[str, float], marker: Figure) -> Figure:
    """A score for each of the games that have one which the axis shows."""
    shown = [game for game in games if scores.get(game, 0) >= FLOOR]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "y": [game_title(game) for game in shown],
        "x": [float(f"{scores[game]:.6g}") for game in shown],
        "marker": marker,
    }


def _comparison(data: list[Figure], reference: str, reach: float, y_axis: Figure, height: int) -> Figure:
    """A wide plot against normalised scores up to `reach`; `height` is in pixels, without the legend."""
    x_range = [float(np.log10(FLOOR)), float(np.log10(reach))]
    title = {"text": f"score, 100 % = {REFERENCES[reference]}"}
    layout = {
        "xaxis": {**_AXIS, "title": title, "type": "log", "range": x_range, **_TICKS, "tickangle": 0},
        "yaxis": _AXIS | y_axis,
        "height": height + 19 * sum(1 + trace["name"].count("<br>") for trace in data),
        "shapes": [_AT_REFERENCE | {"line": {"width": 1, "dash": "dash", "color": "#8a92a3"}}],
        "dragmode": False,
        "hovermode": "closest",
        "legend": _LEGEND,
        "margin": {"l": 10, "r": 14, "t": 30, "b": 10},
    }
    return {"data": data, "layout": layout}


def _line(name: str, x: Array, y: Array, **style: Any) -> Figure:
    return {
        "type": "scatter",
        "name": name,
        "x": [float(f"{value:.9g}") for value in x],
        "y": plain(y),
        "mode": "lines",
        "hoverinfo": "skip",
        **style,
    }


def _run_name(game: Game, number: int) -> str:
    seed = game.runs[number].settings.get("seed")
    return f"run {number + 1}" if seed is None else f"seed {seed}"

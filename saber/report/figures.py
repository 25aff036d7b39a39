"""The plots of a report, as plotly takes them."""

from typing import Any

import numpy as np

from memory.rows import Array
from saber.atari_scores import COLUMNS, NO_OP, REFERENCES, STICKY
from saber.page import BAND, BLUE, ORANGE, TEAL, game_title
from saber.report.results import FLOOR, THRESHOLDS, WHOLE, Game, Results, plain

Figure = dict[str, Any]

PALE = "rgba(59,130,214,0.45)"
_SYMBOLS = ("circle", "diamond", "square", "cross", "x", "triangle-up", "star", "pentagon", "hexagon")
_PURPLE = "#9a6fd0"
_COLOURS = {STICKY: ORANGE, NO_OP: TEAL}
_AXIS = {"zeroline": False, "automargin": True, "showline": True, "ticks": "outside", "fixedrange": True}
_TICKS = {"tickvals": [0.001, 0.01, 0.1, 1, 10, 100], "ticktext": ["0.1 %", "1 %", "10 %", "100 %", "1000 %", "10⁴ %"]}


def curve_figure(game: Game) -> Figure:
    """Every run as a thin line; where all runs have one, their mean and a band from the lowest to the highest."""
    frames, curves = game.curves
    mean = curves.mean(0)  # nan where a run has nothing
    data: list[Figure] = []
    if len(game.runs) > 1:
        edge = {"mode": "lines", "line": {"width": 0}}
        data.append(_line("highest run", frames, np.where(np.isnan(mean), np.nan, curves.max(0)), **edge))
        low = np.where(np.isnan(mean), np.nan, curves.min(0))
        data.append(_line("lowest to highest run", frames, low, **edge, fill="tonexty", fillcolor=BAND))
        data += [
            _line(_run_name(game, number), frames, values, line={"width": 1, "color": PALE})
            for number, values in enumerate(curves)
        ]
    name = f"mean of {len(game.runs)} runs" if len(game.runs) > 1 else _run_name(game, 0)
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
    """Normalised score of each game on a logarithmic axis, highest first, with published agents of the same game."""
    ours = {game: float(scores.mean()) for game, scores in results.normalised(mark, WHOLE, reference).items()}
    games = sorted(ours, key=lambda game: ours[game])  # plotly draws upwards
    values = [ours[game] for game in games]
    data: list[Figure] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": results.protocols.score_name(mark, WHOLE),
            "y": [game_title(game) for game in games],
            "x": [max(FLOOR, value) for value in values],
            "text": [f"{100 * value:,.1f} %" for value in values],
            "textposition": "none",
            "hovertemplate": "%{y}: %{text}<extra>this report</extra>",
            "marker": {"color": BLUE},
        }
    ]
    for symbol, (column, about) in zip(_SYMBOLS, COLUMNS.items(), strict=True):
        scores = results.published(column, mark, reference)
        shown = [game for game in games if game in scores and scores[game] >= FLOOR]
        if shown:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": about.label,
                    "y": [game_title(game) for game in shown],
                    "x": [scores[game] for game in shown],
                    "marker": {"symbol": symbol, "size": 7, "color": _COLOURS.get(about.protocol, _PURPLE)},
                    "visible": True if results.protocols.equal(about.protocol) else "legendonly",
                }
            )
    reach = max(1.0, *(max(trace["x"]) for trace in data))
    layout = _wide_layout(reference)
    layout["xaxis"] |= {"type": "log", "range": [np.log10(FLOOR), float(np.log10(reach)) + 0.1], **_TICKS}
    layout["yaxis"] |= {"tickmode": "linear", "range": [-0.6, len(games) - 0.4]}
    layout["height"] = 130 + 17 * max(4, len(games)) + 19 * len(data)
    layout["shapes"] = [{"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "line": _REFERENCE}]
    return {"data": data, "layout": layout}


def profile_figure(results: Results, mark: int, reference: str) -> Figure:
    """Fraction of games and runs above each normalised score (Agarwal et al. 2021), with the bootstrap's band."""
    profiles = results.profiles[reference]
    fraction, low, high = profiles.ours[WHOLE]
    data: list[Figure] = []
    if low is not None and high is not None:
        edge = {"mode": "lines", "line": {"width": 0}, "showlegend": False}
        data.append(_line("95 % interval, upper", THRESHOLDS, high, **edge))
        data.append(_line("95 % interval, lower", THRESHOLDS, low, **edge, fill="tonexty", fillcolor=BAND))
    name = results.protocols.score_name(mark, WHOLE)
    data.append(_line(name, THRESHOLDS, fraction, line={"width": 2.5, "color": BLUE}, hoverinfo="x+y+name"))
    dashes = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash", "dot")
    for dash, (column, about) in zip(dashes, COLUMNS.items(), strict=True):
        if published := profiles.published.get(column):
            line = {"width": 1.5, "color": _COLOURS.get(about.protocol, _PURPLE), "dash": dash}
            visible = True if results.protocols.equal(about.protocol) else "legendonly"
            data.append(
                _line(about.label, THRESHOLDS, published.fraction, line=line, visible=visible, hoverinfo="x+y+name")
            )
    layout = _wide_layout(reference)
    layout["xaxis"] |= {"type": "log", "range": [float(np.log10(FLOOR)), 2], **_TICKS}
    layout["yaxis"] |= {"title": {"text": "fraction above"}, "range": [-0.02, 1.02], "tickformat": ".0%"}
    layout["height"] = 400 + 19 * len(data)
    layout["shapes"] = [{"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "line": _REFERENCE}]
    return {"data": data, "layout": layout}


_REFERENCE = {"width": 1, "dash": "dash", "color": "#8a92a3"}


def _wide_layout(reference: str) -> Figure:
    return {
        "xaxis": {**_AXIS, "title": {"text": f"score, 100 % = {REFERENCES[reference]}"}},
        "yaxis": dict(_AXIS),
        "dragmode": False,
        "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        "margin": {"l": 10, "r": 14, "t": 30, "b": 10},
    }


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


def all_figures(results: Results) -> dict[str, Figure]:
    """Every plot by the id of its element in the page: normalised ones if a game has a score at a mark."""
    figures: dict[str, Figure] = {}
    if results.mark is not None:
        for reference in results.profiles:
            figures[f"bars-{reference}"] = bar_figure(results, results.mark, reference)
            figures[f"profile-{reference}"] = profile_figure(results, results.mark, reference)
    return figures | {f"curve-{number}": curve_figure(game) for number, game in enumerate(results.games)}

"""How agents are drawn, the same way in all plots of a report."""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import cycle
from textwrap import wrap
from typing import Any, NamedTuple

import numpy as np

from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.saber.results.atari_scores import Column
from rainbow_iqn_apex.saber.results.colours import AGENTS, PUBLISHED

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

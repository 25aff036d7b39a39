"""Pages with plots that are one file: each contains plotly.js (4.8 MB), so pages open offline and can be mailed.

A script beside a page would be left behind, and a script on a CDN needs a network. Pages follow the reader's choice of
a light or a dark display, and are light on paper. All plots are drawn before the page counts as loaded, so pictures of
the whole page and prints hold all plots.
"""

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from plotly.offline import get_plotlyjs

from rainbow_iqn_apex.saber.results.figure import (
    BAND_OPACITY,
    BAR_OPACITY,
    COLOURS,
    DARK,
    LIGHT,
    PAR,
    Axis,
    Figure,
    Marker,
    Series,
    Stroke,
)

_INTERVAL_S = 30  # a learner writes its plot no more often

_HAND_OVER = """
const [summary, written] = ["summary", "figure"].map(id => document.getElementById(id));
const inFrame = parent !== window && new URLSearchParams(location.search).has("newest");
if (inFrame) {  // of a page that looks for newer data; pages of file:// have no origin to name
  parent.postMessage([summary.textContent, written.textContent], location.protocol === "file:" ? "*" : location.origin);
  stop();
}
"""

_LOOK_AGAIN = f"""
let shown = written.textContent, frame = null;
function look() {{
  if (document.hidden) return;
  if (frame) frame.remove();  // the file had gone
  frame = document.createElement("iframe");
  frame.hidden = true;
  const newest = new URL(location);
  newest.hash = "";
  newest.searchParams.set("newest", Date.now());
  frame.src = newest;
  document.body.append(frame);
}}
addEventListener("message", ({{ source, data }}) => {{
  if (!frame || source !== frame.contentWindow) return;
  frame.remove();
  frame = null;
  if (data[1] === shown) return;
  [summary.textContent, shown] = data;
  show(shown);
}});
if (!inFrame) setInterval(look, {_INTERVAL_S} * 1000);
"""

_PAGE = Template(Path(__file__).with_name("page.html").read_text("utf-8"))
_PAPER_WIDTH = 690  # pixels: what A4 and Letter leave for a plot,
_PAPER_HEIGHT = 830  # with a text above it


def render_page(title: str, body: str, figures: Mapping[str, Figure], style: str, *, live: bool = False) -> str:
    """Write a page; `body` is HTML in which every figure has an element with its key as the id, and `style` is CSS.

    A `live` page brings itself up to date while it is open; its body has an element `summary`.
    """
    drawn = {name: to_plotly(figure) for name, figure in figures.items()}
    return _PAGE.substitute(
        title=escape(title),
        style=style,
        body=body,
        light=_variables(LIGHT),
        dark=_variables(DARK),
        paper_width=_PAPER_WIDTH,
        paper_height=_PAPER_HEIGHT,
        themes=json.dumps({"light": LIGHT, "dark": DARK}),
        shades=json.dumps(SHADES),
        # No name in the JSON can end the script around it.
        figures=json.dumps(drawn, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
        plotly=get_plotlyjs(),
        hand_over=f"<script>{_HAND_OVER}</script>\n" if live else "",
        look_again=_LOOK_AGAIN if live else "",
    )


def band(colour: str) -> str:
    """Return the colour that fills the band around a line: transparent, to show what lies behind the band."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},{BAND_OPACITY})"


SHADES = {colour.light: colour.dark for colour in COLOURS} | {
    band(colour.light): band(colour.dark) for colour in COLOURS
}


def to_plotly(figure: Figure) -> dict[str, Any]:
    """Write the figure for plotly, without the colours of text and grid: the page sets them for each display."""
    layout: dict[str, Any] = {
        "xaxis": _axis(figure.x) | {"fixedrange": not figure.zoom, "spikethickness": 1, "spikedash": "solid"},
        "yaxis": _axis(figure.y) | {"fixedrange": not figure.zoom},
        "shapes": [_line_across("x", figure.par, PAR)] if figure.par else [],
        "hovermode": "x" if figure.par is None else "closest",
        "hoverlabel": {"align": "left"},
        "showlegend": figure.legend,
        "legend": {"orientation": "h", "traceorder": "normal", "x": 0},
        "margin": {"l": 10, "r": 14, "t": 30 if figure.legend else 10, "b": 10},
    }
    if figure.zoom:  # below the buttons for zooming, and above the data
        layout["legend"] |= {"y": 1.02, "yanchor": "bottom"}
        layout["margin"]["t"] = 40
    else:  # at the top of its element, which keeps it off the plot however its lines break
        layout["legend"] |= {"xref": "container", "yref": "container", "y": 1, "yanchor": "top"}
        layout["legend"]["maxheight"] = 1  # beyond half of it, it would scroll
        layout["dragmode"] = False
    for line in figure.references:
        named = {"name": line.label, "showlegend": True, "legendrank": 1001}  # behind the curves
        layout["shapes"].append(_line_across("y", line.value, line.stroke) | named)
    if figure.height is not None:
        layout["height"] = figure.height
    return {"data": [trace for series in figure.series for trace in _traces(series)], "layout": layout}


def plain_text(text: str) -> str:
    """Return the text as plotly shows it: tags in it, as in names of files, are none."""
    return escape(text, quote=False).replace("\n", "<br>")


def _traces(series: Series) -> list[dict[str, Any]]:
    trace: dict[str, Any] = {"type": "scatter", "name": plain_text(series.name), "x": series.x}
    trace["y"] = [plain_text(value) if isinstance(value, str) else value for value in series.y]
    trace["mode"] = "+".join(["lines"] * bool(series.line) + ["markers"] * bool(series.marker or series.dots))
    trace |= {"opacity": series.opacity, "showlegend": series.in_legend}
    trace["visible"] = "legendonly" if series.hidden else True
    if series.line:
        trace["line"] = _stroke(series.line)
    if series.marker:
        trace["marker"] = _marker(series.marker)
    if series.bars:
        look = {"color": series.bars, "opacity": BAR_OPACITY}
        trace |= {"type": "bar", "orientation": "h", "marker": look}
        del trace["mode"]
    if not isinstance(series.hover, str):
        trace |= {"hoverinfo": "text", "hovertext": series.hover}
    else:
        trace |= {"hovertemplate": series.hover} if series.hover else {"hoverinfo": "skip"}
    return [*_band(series), trace]


def _band(series: Series) -> list[dict[str, Any]]:
    """Two lines without a width, the upper and then the lower one, with a filling between."""
    if series.band is None or series.line is None:
        return []
    low, high = series.band
    name = plain_text(series.band_name or f"{series.name}, band")
    line = {"width": 0, "shape": "hv" if series.line.steps else "linear"}
    edge = {"type": "scatter", "x": series.x, "mode": "lines", "line": line, "hoverinfo": "skip", "legendgroup": name}
    fill = {"fill": "tonexty", "fillcolor": band(series.line.colour), "showlegend": bool(series.band_name)}
    return [edge | {"name": f"{name}, upper", "y": high, "showlegend": False}, edge | {"name": name, "y": low} | fill]


def _stroke(stroke: Stroke) -> dict[str, Any]:
    shape = "hv" if stroke.steps else "linear"
    return {"width": stroke.width, "color": stroke.colour, "dash": stroke.dash, "shape": shape}


def _marker(marker: Marker) -> dict[str, Any]:
    edge = {"width": 1.5 if marker.is_open else 0, "color": marker.colour}
    colour = LIGHT["paper"] if marker.is_open else marker.colour
    return {"symbol": marker.symbol, "size": marker.size, "color": colour, "line": edge}


def _line_across(axis: str, value: float, stroke: Stroke) -> dict[str, Any]:
    other = "y" if axis == "x" else "x"
    line = {"width": stroke.width, "color": stroke.colour, "dash": stroke.dash}
    ends = {f"{axis}0": value, f"{axis}1": value, f"{other}0": 0, f"{other}1": 1}
    return {"type": "line", f"{other}ref": "paper", "line": line, **ends}


def _axis(axis: Axis) -> dict[str, Any]:
    found: dict[str, Any] = {"zeroline": False, "automargin": True, "showline": True, "title": {"text": axis.title}}
    found |= {"rangemode": "tozero" if axis.from_zero else "normal", "nticks": axis.most_ticks}
    found |= {"type": "log" if axis.log else "-", "tickformat": ".0%" if axis.percent else ""}
    found |= {"ticks": "" if axis.blank else "outside", "showticklabels": not axis.blank, "showgrid": not axis.blank}
    if axis.limits:
        found["range"] = axis.limits  # plotly forgets a reader's zoom if it is null
    if axis.ticks:
        values, texts = zip(*axis.ticks, strict=True)
        found |= {"tickvals": values, "ticktext": texts, "tickangle": 0}
    if axis.categories:
        names = list(map(plain_text, axis.categories))
        found |= {"type": "category", "tickmode": "linear", "categoryorder": "array", "categoryarray": names}
    return found


def _variables(theme: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in theme.items())

"""Writes the plots of a report as SVG files for papers, by matplotlib: plotly's own way to a file needs a browser.

It takes what `saber/report/figures.py` makes for plotly, in the light colours. Traces that wait for a
click in a legend are left out.
"""

import io
import logging
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from html import unescape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from rainbow_iqn_apex.common.text import encodable
from rainbow_iqn_apex.saber.results.figure import LIGHT


@contextmanager
def _default_settings() -> Iterator[None]:
    """Hide the environment variables of a backend and of a file of settings, and what matplotlib logs about files."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    found = find_spec("matplotlib")
    own = str(Path(found.origin).with_name("mpl-data") / "matplotlibrc") if found and found.origin else ""
    users = {name: os.environ.get(name) for name in ("MPLBACKEND", "MATPLOTLIBRC")}
    os.environ |= {"MPLBACKEND": "agg", "MATPLOTLIBRC": own}
    try:
        yield
    finally:
        for name, value in users.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


with _default_settings():
    import matplotlib as mpl
    from matplotlib import ticker
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Axes", "Figure", "drawing_style", "ticker"]


def drawing_style(style: dict[str, Any]) -> AbstractContextManager[None]:
    """Return a context in which figures have this style, and matplotlib's defaults elsewhere."""
    defaults: Any = {name: value for name, value in mpl.rcParamsDefault.items() if name != "backend"}
    return mpl.rc_context(defaults | style)


_Plot = dict[str, Any]  # as plotly takes it
_DASHES = {"dash": (6, 4), "dot": (1.5, 3), "dashdot": (6, 3, 1.5, 3), "longdash": (11, 4)}
_DASHES |= {"longdashdot": (11, 4, 1.5, 4)}
_MARKERS = {"circle": "o", "diamond": "D", "square": "s", "cross": "+", "x": "x", "triangle-up": "^", "star": "*"}
_MARKERS |= {"pentagon": "p", "hexagon": "h", "triangle-down": "v"}
_CHARACTER, _SAMPLE, _LINE = 6.5, 50, 16  # points of a legend: mean width of a character, a line's sample, height
_STYLE = {
    "svg.fonttype": "none",  # texts stay texts
    "svg.hashsalt": "saber",  # equal figures give equal files
    "font.size": 11,
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial"],  # the first comes with matplotlib
    "text.parse_math": False,
    "text.color": LIGHT["ink"],
    "axes.labelcolor": LIGHT["ink"],
    "axes.edgecolor": LIGHT["soft"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": LIGHT["grid"],
    "xtick.color": LIGHT["soft"],
    "xtick.labelcolor": LIGHT["ink"],
    "ytick.color": LIGHT["soft"],
    "ytick.labelcolor": LIGHT["ink"],
    "lines.scale_dashes": False,
}


def to_svg(figure: _Plot, width: int, height: int) -> str:
    """Write the figure as a picture of this size [points], to which the lines of the legend are added."""
    layout = figure["layout"]
    file = io.StringIO()
    with drawing_style(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # measured with another font, and written as text
        picture = Figure(figsize=(width / 72, height / 72), layout="constrained")
        axes = picture.add_subplot()
        named = _draw(axes, figure)
        _scale(axes, "x", layout["xaxis"])
        _scale(axes, "y", layout["yaxis"])
        heading, caption = layout.get("meta", ("", ""))
        axes.set_title(_plain(caption), loc="left", fontsize=10, color=LIGHT["soft"])
        lines = _legend(picture, named if len(named) > 1 else {}, _plain(heading), width)
        picture.set_size_inches(width / 72, (height + _LINE * lines) / 72)
        picture.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _draw(axes: Axes, figure: _Plot) -> dict[str, Any]:
    """Draw all traces and lines across the plot; returns what the legend shows by its name."""
    categories = list(figure["layout"]["yaxis"].get("categoryarray", ()))
    shown = [trace for trace in figure["data"] if trace.get("visible", True) is True]
    named: dict[str, Any] = {}
    for before, trace in zip([{}, *shown], shown, strict=False):
        y = [categories.index(value) for value in trace["y"]] if categories else np.array(trace["y"], float)
        if trace.get("type") == "bar":
            left = 10 ** figure["layout"]["xaxis"]["range"][0]
            paint: _Plot = {"color": trace["marker"]["color"], "alpha": trace["marker"]["opacity"]}
            artist: Any = axes.barh(y, np.array(trace["x"]) - left, 0.72, left, **paint)
        elif trace.get("fill") == "tonexty":
            *colour, opacity = map(float, re.findall(r"[\d.]+", trace["fillcolor"]))
            fill: _Plot = {"color": [part / 255 for part in colour], "alpha": opacity, "linewidth": 0}
            fill["step"] = "post" if trace["line"].get("shape") == "hv" else None
            artist = axes.fill_between(trace["x"], np.array(before["y"], float), y, **fill)
        else:
            (artist,) = axes.plot(trace["x"], y, **_stroke(trace.get("line", {})), **_marker(trace))
            artist.set_alpha(trace.get("opacity"))
        if trace.get("showlegend", True):
            named[_plain(trace["name"])] = artist
    for shape in figure["layout"].get("shapes", ()):
        _across(axes, shape)
    return named


def _stroke(line: _Plot) -> _Plot:
    dashes = _DASHES.get(line.get("dash", "solid"))
    return {
        "color": line.get("color"),
        "linewidth": line.get("width", 0),
        "linestyle": (0, dashes) if dashes else "solid",
        "drawstyle": "steps-post" if line.get("shape") == "hv" else "default",
    }


def _marker(trace: _Plot) -> _Plot:
    if "markers" not in trace["mode"]:
        return {}
    marker = trace.get("marker") or {"symbol": "circle", "size": 5, "color": trace["line"]["color"]}
    name, is_open, _ = marker["symbol"].partition("-open")
    edge = marker.get("line", {"width": 1.5 if is_open or name in ("cross", "x") else 0, "color": marker["color"]})
    return {
        "marker": _MARKERS[name],
        "markersize": marker["size"] * (1.4 if name == "star" else 1),
        "markerfacecolor": "none" if is_open else marker["color"],
        "markeredgecolor": edge["color"],
        "markeredgewidth": edge["width"],
    }


def _across(axes: Axes, shape: _Plot) -> None:
    """Draw a line across the plot; the title names it."""
    stroke = _stroke(shape["line"])
    if shape.get("yref") == "paper":
        axes.axvline(shape["x0"], **stroke)
    else:
        axes.axhline(shape["y0"], **stroke)


def _scale(axes: Axes, name: str, layout: _Plot) -> None:
    """Give the axis "x" or "y" the scale, ticks, range and title of plotly's layout."""
    axis = axes.xaxis if name == "x" else axes.yaxis
    is_log = layout.get("type") == "log"
    if is_log:
        axes.set(**{f"{name}scale": "log"})
        axis.set_minor_locator(ticker.NullLocator())
    if "tickvals" in layout:
        axis.set_ticks(layout["tickvals"], layout["ticktext"])
    elif "categoryarray" in layout:
        axis.set_ticks(range(len(layout["categoryarray"])), list(map(_plain, layout["categoryarray"])))
    else:
        axis.set_major_locator(ticker.MaxNLocator(6, steps=[1, 2, 5, 10]))
        percent = layout.get("tickformat") == ".0%"
        axis.set_major_formatter(ticker.PercentFormatter(1) if percent else ticker.FuncFormatter(format_tick))
    low, high = axis.get_view_interval()
    if "range" in layout:
        low, high = (10.0**end if is_log else end for end in layout["range"])
    elif layout.get("rangemode") == "tozero":
        low = min(0.0, axis.get_data_interval()[0])
    title = _plain(layout.get("title", {}).get("text", ""))
    axes.set(**{f"{name}lim": (low, high), f"{name}label": title})


def format_tick(value: float, _: object = None) -> str:
    """Write a value shortly, as in 1.5 M."""
    for size, unit in ((1e9, " B"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:.6g}"


def _legend(picture: Figure, named: dict[str, Any], heading: str, width: int) -> int:
    """Write heading and legend above the plot; returns the lines of the legend."""
    if not named and not heading:
        return 0
    longest = max((len(line) for name in named for line in name.split("\n")), default=0)
    columns = max(1, int(width / (_SAMPLE + _CHARACTER * longest)))
    picture.legend(
        named.values(),
        named,
        title=heading or None,
        title_fontproperties={"weight": "bold"},
        ncols=columns,
        loc="outside upper left",
        alignment="left",
        frameon=False,
        borderpad=0,
    )
    heights = [1 + name.count("\n") for name in named]
    return -(-sum(heights) // columns)


def _plain(text: str) -> str:
    """Return one of plotly's texts as it stands in a file: lines for <br>, characters for entities."""
    return "\n".join(encodable(unescape(line)) for line in text.split("<br>"))

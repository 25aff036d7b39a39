"""Figures as SVG files for papers, drawn by matplotlib; the only module that imports it.

Plotly's own way to a file needs a browser. matplotlib is used with its own defaults, whatever backend and style its
user has chosen: a notebook's MPLBACKEND names a module that need not be installed here, with which the import of
matplotlib fails. Figures are made without pyplot, so that nothing asks for a backend later.
"""

import io
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from rainbow_iqn_apex.common.text import encodable
from rainbow_iqn_apex.saber.results.figure import (
    BAND_OPACITY,
    BAR_OPACITY,
    LIGHT,
    PAR,
    Axis,
    Figure,
    Marker,
    Series,
    Stroke,
)


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
    from matplotlib.figure import Figure as Picture

__all__ = ["Axes", "Picture", "drawing_style", "format_tick", "ticker", "to_svg"]


def drawing_style(style: dict[str, Any]) -> AbstractContextManager[None]:
    """Return a context in which figures have this style, and matplotlib's defaults elsewhere."""
    defaults: Any = {name: value for name, value in mpl.rcParamsDefault.items() if name != "backend"}
    return mpl.rc_context(defaults | style)


_DASHES = {"dash": (6, 4), "dot": (1.5, 3), "dashdot": (6, 3, 1.5, 3), "longdash": (11, 4)}
_DASHES |= {"longdashdot": (11, 4, 1.5, 4)}
_MARKERS = {"circle": "o", "diamond": "D", "square": "s", "cross": "+", "x": "x", "triangle-up": "^", "star": "*"}
_MARKERS |= {"pentagon": "p", "hexagon": "h", "triangle-down": "v"}
_CHARACTER = 6.5  # points: mean width of a character in a legend
_SAMPLE = 50  # points: width of a line's sample in a legend
_LINE = 16  # points: height of a line of a legend
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


def to_svg(figure: Figure, width: int, height: int) -> str:
    """Write the figure as a picture of this size [points], to which the lines of the legend are added."""
    file = io.StringIO()
    with drawing_style(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # measured with another font, and written as text
        picture = Picture(figsize=(width / 72, height / 72), layout="constrained")
        axes = picture.add_subplot()
        named = _draw(axes, figure)
        _scale(axes, "x", figure.x)
        _scale(axes, "y", figure.y)
        axes.set_title(encodable(figure.caption), loc="left", fontsize=10, color=LIGHT["soft"])
        lines = _legend(picture, named if len(named) > 1 else {}, encodable(figure.title), width)
        picture.set_size_inches(width / 72, (height + _LINE * lines) / 72)
        picture.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _draw(axes: Axes, figure: Figure) -> dict[str, Any]:
    """Draw all that is not hidden; returns what the legend shows by its name."""
    named: dict[str, Any] = {}
    categories = figure.y.categories
    for series in figure.series:
        if series.hidden:
            continue
        y = [categories.index(value) for value in series.y] if categories else np.array(series.y, float)
        if series.bars and figure.x.limits:
            left = 10 ** figure.x.limits[0]
            artist: Any = axes.barh(y, np.array(series.x) - left, 0.72, left, color=series.bars, alpha=BAR_OPACITY)
        else:
            (artist,) = axes.plot(series.x, y, alpha=series.opacity, **_stroke(series.line), **_marker(series))
        if series.in_legend:
            named[encodable(series.name)] = artist
        if series.band and series.line:
            low, high = (np.array(values, float) for values in series.band)
            step: Any = "post" if series.line.steps else None
            fill: Any = {"color": series.line.colour, "alpha": BAND_OPACITY, "linewidth": 0}
            artist = axes.fill_between(series.x, low, high, step=step, **fill)
            named |= {encodable(series.band_name): artist} if series.band_name else {}
    for line in figure.references:
        axes.axhline(line.value, **_stroke(line.stroke))
    if figure.par is not None:
        axes.axvline(figure.par, **_stroke(PAR))
    return named


def _stroke(stroke: Stroke | None) -> dict[str, Any]:
    if stroke is None:
        return {"linewidth": 0}
    dashes = _DASHES.get(stroke.dash)
    return {
        "color": stroke.colour,
        "linewidth": stroke.width,
        "linestyle": (0, dashes) if dashes else "solid",
        "drawstyle": "steps-post" if stroke.steps else "default",
    }


def _marker(series: Series) -> dict[str, Any]:
    marker = series.marker
    if marker is None:
        if series.line is None or not series.dots:
            return {}
        marker = Marker("circle", 5, series.line.colour)
    is_line = marker.symbol in ("cross", "x")
    return {
        "marker": _MARKERS[marker.symbol],
        "markersize": marker.size * (1.4 if marker.symbol == "star" else 1),
        "markerfacecolor": LIGHT["paper"] if marker.is_open else marker.colour,
        "markeredgecolor": marker.colour,
        "markeredgewidth": 1.5 if marker.is_open or is_line else 0,
    }


def _scale(axes: Axes, name: str, scale: Axis) -> None:
    """Give the axis "x" or "y" its scale, ticks, limits and title."""
    axis = axes.xaxis if name == "x" else axes.yaxis
    if scale.log:
        axes.set(**{f"{name}scale": "log"})
        axis.set_minor_locator(ticker.NullLocator())
    if scale.ticks:
        axis.set_ticks([value for value, _ in scale.ticks], [text for _, text in scale.ticks])
    elif scale.categories:
        axis.set_ticks(range(len(scale.categories)), list(map(encodable, scale.categories)))
    else:
        axis.set_major_locator(ticker.MaxNLocator(6, steps=[1, 2, 5, 10]))
        axis.set_major_formatter(ticker.PercentFormatter(1) if scale.percent else ticker.FuncFormatter(format_tick))
    low, high = axis.get_view_interval()
    if scale.limits:
        low, high = (10.0**end if scale.log else end for end in scale.limits)
    elif scale.from_zero:
        low = min(0.0, axis.get_data_interval()[0])
    axes.set(**{f"{name}lim": (low, high), f"{name}label": scale.title})


def format_tick(value: float, _: object = None) -> str:
    """Write a value shortly, as in 1.5 M."""
    for size, unit in ((1e9, " B"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:.6g}"


def _legend(picture: Picture, named: dict[str, Any], heading: str, width: int) -> int:
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

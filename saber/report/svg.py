"""Writes the plots of a report as SVG files for papers: plotly's own way to a file needs a browser.

It takes what `saber/report/figures.py` and `curves.py` make, as plotly does: lines, steps, bands, bars, points and
horizontal or vertical lines, in the light colours. Traces that wait for a click in a legend are left out.
"""

import math
import re
from collections.abc import Iterator
from html import escape, unescape
from itertools import accumulate, pairwise

from rainbow_iqn_apex.saber.report.styles import Figure
from rainbow_iqn_apex.saber.report.svg_axes import Axis, make_axis, ticks
from rainbow_iqn_apex.saber.results.colours import LIGHT

_DASHES = {"dash": "6 4", "dot": "1.5 3", "dashdot": "6 3 1.5 3", "longdash": "11 4", "longdashdot": "11 4 1.5 4"}
_FONT, _CHARACTER = 11, 6.1  # pixels: size, and mean width of a character
_LINE = 16  # pixels from a line of text to the next
_CORNERS = {"triangle-up": (3, -90), "triangle-down": (3, 90), "diamond": (4, -90), "square": (4, -45)}
_CORNERS |= {"pentagon": (5, -90), "hexagon": (6, -90)}  # number of corners, and angle of the first


def to_svg(figure: Figure, width: int, height: int) -> str:
    """Write the figure as a picture of this size [pixels], to which the lines of the legend are added."""
    layout = figure["layout"]
    data = [trace for trace in figure["data"] if trace.get("visible", True) is True]
    legend = _legend(data, width)
    heading = [text for text in layout.get("meta", ()) if text]
    rows = [0, *accumulate(max(len(_legend_lines(trace)) for trace in items) for items in legend)]  # of texts, above
    top = 14 + _LINE * (rows[-1] + len(heading))
    height += _LINE * rows[-1]
    x_axis, y_axis = _axes(layout, data, (width, height), top)
    body = [f'<rect width="{width}" height="{height}" fill="{LIGHT["paper"]}"/>']
    body += [_text(8, 16 + _LINE * row, line, bold=row == 0) for row, line in enumerate(heading)]
    for row, items in zip(rows, legend, strict=False):
        body += _legend_row(items, 8, 14 + _LINE * (len(heading) + row))
    body += _frame(layout, x_axis, y_axis)
    for index, trace in enumerate(data):
        body += _trace(trace, data[index - 1] if index else trace, x_axis, y_axis)
    body += [element for shape in layout.get("shapes", ()) for element in _shape(shape, x_axis, y_axis)]
    lines = "\n".join(body)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="Helvetica, Arial, sans-serif" font-size="{_FONT}" fill="{LIGHT["ink"]}">\n{lines}\n</svg>\n'
    )


def _axes(layout: Figure, data: list[Figure], size: tuple[int, int], top: float) -> tuple[Axis, Axis]:
    width, height = size
    x_values = [value for trace in data for value in trace["x"]]
    y_values = [value for trace in data for value in trace["y"] if value is not None]
    y_values += [shape["y0"] for shape in layout.get("shapes", ()) if "yref" not in shape]
    bottom = height - 20 - _LINE * ("title" in layout["xaxis"])
    y_axis = make_axis(layout["yaxis"], y_values, bottom, top)
    widest = max((len(text) for _, text in ticks(layout["yaxis"], y_axis)), default=0)
    left = 14 + _CHARACTER * widest + _LINE * ("title" in layout["yaxis"])
    return make_axis(layout["xaxis"], x_values, left, width - 14), y_axis


def _frame(layout: Figure, x_axis: Axis, y_axis: Axis) -> list[str]:
    """Grid, ticks, and titles of the axes."""
    left, right, bottom, top = x_axis.start, x_axis.end, y_axis.start, y_axis.end
    grid, soft = LIGHT["grid"], LIGHT["soft"]
    lines = []
    for x, text in ticks(layout["xaxis"], x_axis):
        lines.append(f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" stroke="{grid}"/>')
        lines.append(_text(x, bottom + 15, text, anchor="middle"))
    for y, text in ticks(layout["yaxis"], y_axis):
        lines.append(f'<path d="M{left:.1f} {y:.1f}H{right:.1f}" stroke="{grid}"/>')
        lines.append(_text(left - 6, y + 4, text, anchor="end"))
    lines.append(f'<path d="M{left:.1f} {top:.1f}V{bottom:.1f}H{right:.1f}" fill="none" stroke="{soft}"/>')
    if title := layout["xaxis"].get("title"):
        lines.append(_text((left + right) / 2, bottom + 32, title["text"], anchor="middle"))
    if title := layout["yaxis"].get("title"):
        middle = (top + bottom) / 2
        text = _text(12, middle, title["text"], anchor="middle")
        lines.append(f'<g transform="rotate(-90 12 {middle:.1f})">{text}</g>')
    return lines


def _trace(trace: Figure, before: Figure, x_axis: Axis, y_axis: Axis) -> list[str]:
    if trace.get("type") == "bar":
        return list(_bars(trace, x_axis, y_axis))
    elements = []
    mode = trace.get("mode", "lines")
    if trace.get("fill") == "tonexty":
        elements += [_band(upper, lower, trace) for upper, lower in _band_parts(trace, before, x_axis, y_axis)]
    elif "lines" in mode and trace["line"]["width"]:
        elements += [_path(points, trace["line"], trace.get("opacity", 1)) for points in _parts(trace, x_axis, y_axis)]
    if "markers" in mode:
        marker = trace.get("marker") or {"symbol": "circle", "size": 5, "color": trace["line"]["color"]}
        elements += [_symbol(x, y, marker) for points in _parts(trace, x_axis, y_axis) for x, y in points]
    return elements


_Points = list[tuple[float, float]]


def _parts(trace: Figure, x_axis: Axis, y_axis: Axis) -> Iterator[_Points]:
    """The points [pixels] of a trace, parted at its gaps."""
    part: _Points = []
    for x, y in zip(trace["x"], trace["y"], strict=True):
        if y is not None:
            part.append((x_axis.place(x), y_axis.place(y)))
        elif part:
            yield part
            part = []
    if part:
        yield part


def _steps(points: _Points) -> _Points:
    """With the corners of steps, which go on at their height until the next point."""
    return [point for (x0, y0), (x1, _) in pairwise(points) for point in ((x0, y0), (x1, y0))] + [points[-1]]


def _band_parts(trace: Figure, before: Figure, x_axis: Axis, y_axis: Axis) -> Iterator[tuple[_Points, _Points]]:
    for upper, lower in zip(_parts(before, x_axis, y_axis), _parts(trace, x_axis, y_axis), strict=True):
        yield (_steps(upper), _steps(lower)) if trace["line"].get("shape") == "hv" else (upper, lower)


def _band(upper: _Points, lower: _Points, trace: Figure) -> str:
    red, green, blue, opacity = re.findall(r"[\d.]+", trace["fillcolor"])
    return (
        f'<path d="M{_joined([*upper, *reversed(lower)])}Z" fill="rgb({red},{green},{blue})" fill-opacity="{opacity}"/>'
    )


def _path(points: _Points, line: Figure, opacity: float) -> str:
    points = _steps(points) if line.get("shape") == "hv" else points
    faint = "" if opacity == 1 else f' stroke-opacity="{opacity}"'
    return f'<path d="M{_joined(points)}" fill="none" {_stroke(line)}{faint}/>'


def _joined(points: _Points) -> str:
    return "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _stroke(line: Figure) -> str:
    dashes = _DASHES.get(line.get("dash", "solid"))
    text = f'stroke="{line["color"]}" stroke-width="{line["width"]}"'
    return f'{text} stroke-dasharray="{dashes}"' if dashes else text


def _bars(trace: Figure, x_axis: Axis, y_axis: Axis) -> Iterator[str]:
    half = 0.36 * abs(y_axis.end - y_axis.start) / max(1, len(y_axis.categories))
    for x, y in zip(trace["x"], trace["y"], strict=True):
        width, middle = max(0.0, x_axis.place(x) - x_axis.start), y_axis.place(y)
        yield (
            f'<rect x="{x_axis.start:.1f}" y="{middle - half:.1f}" width="{width:.1f}" height="{2 * half:.1f}" '
            f"{_fill(trace['marker'])}/>"
        )


def _fill(marker: Figure) -> str:
    return f'fill="{marker["color"]}" fill-opacity="{marker.get("opacity", 1)}"'


def _symbol(x: float, y: float, marker: Figure) -> str:
    name, is_open, _ = marker["symbol"].partition("-open")
    edge = marker.get("line") or {"width": 1.5 if is_open or name in ("cross", "x") else 0, "color": marker["color"]}
    paint = f'fill="{"none" if is_open else marker["color"]}" stroke="{edge["color"]}" stroke-width="{edge["width"]}"'
    radius = marker["size"] / 2
    if name in _CORNERS:
        corners, first = _CORNERS[name]
        return f'<path d="M{_joined(_ring(x, y, [radius * 1.2] * corners, first))}Z" {paint}/>'
    if name == "star":
        return f'<path d="M{_joined(_ring(x, y, [radius * 1.4, radius * 0.6] * 5, -90))}Z" {paint}/>'
    if name in ("cross", "x"):
        ends = _ring(x, y, [radius * 1.2] * 4, 0 if name == "cross" else 45)
        return f'<path d="M{_joined(ends[::2])}M{_joined(ends[1::2])}" {paint}/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" {paint}/>'


def _ring(x: float, y: float, radii: list[float], first: float) -> _Points:
    """Points around a place, the first at an angle in degrees."""
    angles = [math.radians(first + 360 * number / len(radii)) for number in range(len(radii))]
    return [(x + r * math.cos(angle), y + r * math.sin(angle)) for r, angle in zip(radii, angles, strict=True)]


def _shape(shape: Figure, x_axis: Axis, y_axis: Axis) -> Iterator[str]:
    """A line across the plot, with its name."""
    if shape.get("yref") == "paper":
        x = x_axis.place(shape["x0"])
        yield f'<path d="M{x:.1f} {y_axis.start:.1f}V{y_axis.end:.1f}" {_stroke(shape["line"])}/>'
        return
    y = y_axis.place(shape["y0"])
    yield f'<path d="M{x_axis.start:.1f} {y:.1f}H{x_axis.end:.1f}" {_stroke(shape["line"])}/>'
    ends: dict[str, tuple[float, str]] = {"start": (x_axis.start + 3, "start"), "end": (x_axis.end - 3, "end")}
    ends["middle"] = ((x_axis.start + x_axis.end) / 2, "middle")
    place, anchor = ends[shape["label"]["textposition"]]
    yield _text(place, y - 3, shape["label"]["text"], anchor=anchor, soft=True)


def _legend(data: list[Figure], width: int) -> list[list[Figure]]:
    """The named traces, in rows that fit the width."""
    rows: list[list[Figure]] = []
    used = math.inf
    for trace in data:
        if trace.get("showlegend", True):
            length = _legend_length(trace)
            if used + length > width:
                rows.append([])
                used = 0
            rows[-1].append(trace)
            used += length
    return rows if sum(map(len, rows)) > 1 else []


def _legend_lines(trace: Figure) -> list[str]:
    return str(trace["name"]).split("<br>")


def _legend_length(trace: Figure) -> float:
    return 46 + _CHARACTER * max(len(unescape(line)) for line in _legend_lines(trace))


def _legend_row(items: list[Figure], x: float, y: float) -> list[str]:
    elements = []
    for trace in items:
        if trace.get("type") == "bar":
            elements.append(f'<rect x="{x}" y="{y - 5}" width="24" height="9" {_fill(trace["marker"])}/>')
        elif "markers" in trace["mode"] and "marker" in trace:
            elements.append(_symbol(x + 12, y, trace["marker"]))
        else:
            elements.append(f'<path d="M{x} {y}h24" {_stroke(trace["line"])}/>')
        elements += [_text(x + 30, y + 4 + _LINE * row, line) for row, line in enumerate(_legend_lines(trace))]
        x += _legend_length(trace)
    return elements


def _text(x: float, y: float, text: str, anchor: str = "start", *, bold: bool = False, soft: bool = False) -> str:
    """A line of text; what stands for itself in plotly's texts (&lt;) does so here."""
    style = ' font-weight="bold"' * bold + f' fill="{LIGHT["soft"]}"' * soft
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{escape(unescape(str(text)))}</text>'

"""Horizontal lines of the random agent, the human and the world record, for plots of scores as plotly takes them."""

from typing import Any, NamedTuple

from rainbow_iqn_apex.saber.results.atari_scores import GameScores, format_points
from rainbow_iqn_apex.saber.results.colours import REFERENCE

_DASHES = {"random": "dot", "human": "dash", "world record": "longdashdot"}
# Places of the names, which so never overlap: a curve begins near the random agent, and ends near the record if ever.
_PLACES = {"random": "end", "human": "middle", "world record": "start"}
_BELOW, _ABOVE = 0.08, 0.15  # room of an axis beyond its lines, in lengths of its range; a name stands above a line
_REACH = 1.0  # how far beyond the scores an axis may grow for a line, in lengths of the scores' range


class ReferenceLines(NamedTuple):
    """Lines and range of a plot for the references of its game."""

    shapes: list[dict[str, Any]]  # of plotly's layout
    beyond: str  # references whose lines would flatten the curves, as in "above: human 7,128"; may be empty
    y_axis: dict[str, Any]  # range of the axis, with room for the names of the lines; empty without a line


def reference_lines(scores: GameScores | None, low: float, high: float) -> ReferenceLines:
    """Draw the references of a game that lie near scores from `low` to `high`, and name the others."""
    span = (high - low) or max(1.0, abs(high))
    shapes = []
    beyond: dict[str, list[str]] = {"above": [], "below": []}
    for name, value in references(scores).items():
        if low - _REACH * span <= value <= high + _REACH * span:
            shapes.append(_line(name, value))
        else:
            beyond["above" if value > high else "below"].append(f"{name} {format_points(value)}")
    text = "; ".join(f"{side}: {', '.join(names)}" for side, names in beyond.items() if names)
    return ReferenceLines(shapes, text, _y_axis([low, high, *(shape["y0"] for shape in shapes)]) if shapes else {})


def references(scores: GameScores | None) -> dict[str, float]:
    """Return the known references of a game by name, in points."""
    if scores is None:
        return {}
    known = {"random": scores.random, "human": scores.human, "world record": scores.world_record}
    return {name: value for name, value in known.items() if value is not None}


def _y_axis(values: list[float]) -> dict[str, Any]:
    length = (max(values) - min(values)) or 1.0
    return {"range": [min(values) - _BELOW * length, max(values) + _ABOVE * length]}


def _line(name: str, value: float) -> dict[str, Any]:
    return {
        "type": "line",
        "name": name,
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": value,
        "y1": value,
        "line": {"width": 1, "dash": _DASHES[name], "color": REFERENCE.light},
        "label": {
            "text": f"{name} {format_points(value)}",
            "textposition": _PLACES[name],
            "yanchor": "bottom",
            "padding": 1,
            "font": {"size": 10, "color": REFERENCE.light},
        },
    }

"""Horizontal lines of the random agent, the human and the world record, for plots of scores as plotly takes them."""

from typing import Any, NamedTuple

from rainbow_iqn_apex.saber.results.atari_scores import GameScores, format_points
from rainbow_iqn_apex.saber.results.colours import REFERENCE

_DASHES = {"random": "dot", "human": "dash", "world record": "longdashdot"}
_NAMED = {"random": "dotted", "human": "dashed", "world record": "dash-dotted"}  # how a caption names them
_ROOM = 0.08  # of an axis beyond its lines, in lengths of its range
_REACH = 1.0  # how far beyond the scores an axis may grow for a line, in lengths of the scores' range


class ReferenceLines(NamedTuple):
    """Lines and range of a plot for the references of its game."""

    near: list[str]  # names of the references that have a line
    shapes: list[dict[str, Any]]  # of plotly's layout, with their names in its legend, where no curve crosses these
    caption: str  # names all references, as in "dotted: random 1,011; above: human 7,128"; may be empty
    y_axis: dict[str, Any]  # range of the axis, with room for the lines; empty without a line


def reference_lines(scores: GameScores | None, low: float, high: float) -> ReferenceLines:
    """Draw the references of a game that lie near scores from `low` to `high`; the others would flatten the curves."""
    span = (high - low) or max(1.0, abs(high))
    near: list[str] = []
    shapes, texts = [], []
    beyond: dict[str, list[str]] = {"above": [], "below": []}
    for name, value in references(scores).items():
        if low - _REACH * span <= value <= high + _REACH * span:
            near.append(name)
            shapes.append(_line(name, value))
            texts.append(f"{_NAMED[name]}: {reference_label(name, value)}")
        else:
            beyond["above" if value > high else "below"].append(reference_label(name, value))
    texts += [f"{side}: {', '.join(names)}" for side, names in beyond.items() if names]
    y_axis = _y_axis([low, high, *(shape["y0"] for shape in shapes)]) if shapes else {}
    return ReferenceLines(near, shapes, "; ".join(texts), y_axis)


def references(scores: GameScores | None) -> dict[str, float]:
    """Return the known references of a game by name, in points."""
    if scores is None:
        return {}
    known = {"random": scores.random, "human": scores.human, "world record": scores.world_record}
    return {name: value for name, value in known.items() if value is not None}


def reference_label(name: str, value: float) -> str:
    """Write a score to compare with, the same in all plots and sentences."""
    return f"{name} {format_points(value)}"


def _y_axis(values: list[float]) -> dict[str, Any]:
    room = _ROOM * ((max(values) - min(values)) or 1.0)
    return {"range": [min(values) - room, max(values) + room]}


def _line(name: str, value: float) -> dict[str, Any]:
    return {
        "type": "line",
        "name": reference_label(name, value),
        "showlegend": True,
        "legendrank": 1001,  # behind the curves
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": value,
        "y1": value,
        "line": {"width": 1, "dash": _DASHES[name], "color": REFERENCE.light},
    }

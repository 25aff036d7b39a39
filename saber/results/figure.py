"""Colours of the pages: each colour for a light display and for paper, with its counterpart for a dark display.

Figures hold the light colours; a page replaces them by the dark ones for a reader who asks for a dark display. The
colours of a group differ in lightness as well as in hue, so that colour-blind readers can distinguish them, too.
"""

from typing import Any, NamedTuple

from rainbow_iqn_apex.saber.results.task import GameScores, format_points

LIGHT = {"ink": "#1f2430", "soft": "#59606e", "grid": "#e4e7ec", "paper": "#ffffff"}
DARK = {"ink": "#e6e8ec", "soft": "#a5abb7", "grid": "#2e333c", "paper": "#15171b"}


class Colour(NamedTuple):
    """A colour of a line, as #rrggbb."""

    light: str
    dark: str


BLUE = Colour("#246cd8", "#609cf0")
ORANGE = Colour("#b86a14", "#d08a3c")
TEAL = Colour("#1f8272", "#2f9e8a")
REFERENCE = Colour("#6b7280", "#8a92a3")  # of lines for the random agent, the human and the world record
MAGENTA = Colour("#c03c84", "#c02490")
AGENTS = (
    BLUE,
    Colour("#244800", "#ccfc00"),
    Colour("#a89000", "#847800"),
    MAGENTA,
    Colour("#6c6c00", "#b4c000"),
    Colour("#901860", "#3ce4d8"),
    Colour("#f0609c", "#d87890"),
    Colour("#6c00a8", "#6054f0"),
)
PUBLISHED = (
    Colour("#6090f0", "#90ccfc"),
    Colour("#845490", "#b4fccc"),
    Colour("#000cc0", "#187890"),
    Colour("#fc540c", "#f07818"),
    Colour("#54246c", "#9c18f0"),
    Colour("#b48490", "#00b49c"),
    Colour("#78000c", "#fccc00"),
    Colour("#4848fc", "#a884fc"),
    Colour("#b43000", "#cc2430"),
)


def band(colour: str) -> str:
    """Return the colour that fills the band around a line: transparent, to show what lies behind the band."""
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.25)"


_ALL = (*AGENTS, *PUBLISHED, ORANGE, TEAL, REFERENCE, Colour(LIGHT["paper"], DARK["paper"]))
SHADES = {colour.light: colour.dark for colour in _ALL} | {band(colour.light): band(colour.dark) for colour in _ALL}


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

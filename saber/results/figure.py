"""Figures of scores, described once: plotly draws them on pages (`page.py`), matplotlib in files (`report/svg.py`).

Figures hold the colours for a light display and for paper; a page replaces them by the dark ones for a reader who asks
for a dark display. The colours of a group differ in lightness as well as in hue, so that colour-blind readers can
distinguish them, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
BAND_OPACITY = 0.25
BAR_OPACITY = 0.35  # behind markers of all colours
COLOURS = (*AGENTS, *PUBLISHED, ORANGE, TEAL, REFERENCE, Colour(LIGHT["paper"], DARK["paper"]))

_DASHES = {"random": "dot", "human": "dash", "world record": "longdashdot"}
_NAMED = {"random": "dotted", "human": "dashed", "world record": "dash-dotted"}  # how a caption names them
_ROOM = 0.08  # of an axis beyond its lines, in lengths of its range
_REACH = 1.0  # how far beyond the scores an axis may grow for a line, in lengths of the scores' range


@dataclass(frozen=True)
class Stroke:
    """How a line is drawn; the dash is one of plotly's names."""

    colour: str
    width: float  # pixels or points
    dash: str = "solid"
    steps: bool = False  # a value holds until the next one


PAR = Stroke(REFERENCE.light, 1, "dash")


@dataclass(frozen=True)
class Marker:
    """How a point is drawn; the symbol is one of plotly's names."""

    symbol: str
    size: float  # pixels or points
    colour: str
    is_open: bool = False


@dataclass(frozen=True)
class Series:
    """A line, points, a line with points, or bars; y is None at a gap, or the name of a category of the axis."""

    name: str  # in the legend, where it may have several lines
    x: Sequence[float]
    y: Sequence[float | None] | Sequence[str]
    line: Stroke | None = None
    marker: Marker | None = None
    dots: bool = False  # also mark the points of the line
    bars: str = ""  # their colour; they are horizontal, and transparent for the markers over them
    band: tuple[Sequence[float | None], Sequence[float | None]] | None = None  # area around the line, from low to high
    band_name: str = ""  # in the legend; empty: not there
    opacity: float = 1.0
    in_legend: bool = True
    hidden: bool = False  # until a reader clicks the name in a page's legend; files leave the series out
    hover: Sequence[str] | str = ""  # HTML for each point, or a template of plotly for all


@dataclass(frozen=True)
class Axis:
    """The scale and the ticks of an axis."""

    title: str = ""
    limits: tuple[float, float] | None = None  # on a logarithmic axis log10 of the ends
    log: bool = False
    from_zero: bool = False
    most_ticks: int = 0  # 0: as the library chooses
    ticks: tuple[tuple[float, str], ...] = ()  # fixed ones
    categories: tuple[str, ...] = ()
    percent: bool = False
    blank: bool = False  # without ticks and grid


@dataclass(frozen=True)
class ReferenceLine:
    """A line across a plot at the score of the random agent, the human or the world record."""

    name: str
    value: float

    @property
    def label(self) -> str:
        """Name and value."""
        return reference_label(self.name, self.value)

    @property
    def stroke(self) -> Stroke:
        """How the line is drawn."""
        return Stroke(REFERENCE.light, 1, _DASHES[self.name])


@dataclass(frozen=True)
class Figure:
    """A plot of one pair of axes."""

    series: Sequence[Series]
    x: Axis
    y: Axis
    title: str = ""  # it and the caption stand above the plot
    caption: str = ""
    references: Sequence[ReferenceLine] = ()
    par: float | None = None  # x of a dashed line from bottom to top, where scores equal the reference
    height: int | None = None  # pixels, with the legend; None: that of its place in a page
    legend: bool = True
    zoom: bool = False  # whether readers of a page can zoom


class ReferenceLines(NamedTuple):
    """Lines and range of a plot for the references of its game."""

    lines: list[ReferenceLine]  # with their names in the legend, where no curve crosses these
    caption: str  # names all references, as in "dotted: random 1,011; above: human 7,128"; may be empty
    limits: tuple[float, float] | None  # of the axis, with room for the lines; None without a line


def reference_lines(scores: GameScores | None, low: float, high: float) -> ReferenceLines:
    """Draw the references of a game that lie near scores from `low` to `high`; the others would flatten the curves."""
    span = (high - low) or max(1.0, abs(high))
    lines = []
    texts = []
    beyond: dict[str, list[str]] = {"above": [], "below": []}
    for name, value in references(scores).items():
        if low - _REACH * span <= value <= high + _REACH * span:
            lines.append(ReferenceLine(name, value))
            texts.append(f"{_NAMED[name]}: {reference_label(name, value)}")
        else:
            beyond["above" if value > high else "below"].append(reference_label(name, value))
    texts += [f"{side}: {', '.join(names)}" for side, names in beyond.items() if names]
    values = [low, high, *(line.value for line in lines)]
    room = _ROOM * ((max(values) - min(values)) or 1.0)
    limits = (min(values) - room, max(values) + room) if lines else None
    return ReferenceLines(lines, "; ".join(texts), limits)


def references(scores: GameScores | None) -> dict[str, float]:
    """Return the known references of a game by name, in points."""
    if scores is None:
        return {}
    known = {"random": scores.random, "human": scores.human, "world record": scores.world_record}
    return {name: value for name, value in known.items() if value is not None}


def reference_label(name: str, value: float) -> str:
    """Write a score to compare with, the same in all plots and sentences."""
    return f"{name} {format_points(value)}"

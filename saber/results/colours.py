"""Colours of the pages: each colour for a light display and for paper, with its counterpart for a dark display.

Figures hold the light colours; a page replaces them by the dark ones for a reader who asks for a dark display. The
colours of a group differ in lightness as well as in hue, so that colour-blind readers can distinguish them, too.
"""

from typing import NamedTuple

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

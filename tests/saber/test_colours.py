"""Colours that everybody can tell apart, on a light and on a dark display."""

import itertools

import numpy as np
import pytest

from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.saber.results.figure import AGENTS, DARK, LIGHT, PUBLISHED, Colour
from rainbow_iqn_apex.saber.results.page import SHADES, band

# Machado, Oliveira and Fernandes 2009: how the three kinds of colour blindness see linear RGB.
SIGHTS = {
    "all cones": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
# Björn Ottosson's OKLab, in which distances are about as large as differences look.
TO_LMS = [
    [0.41222147, 0.53633254, 0.05144599],
    [0.2119035, 0.68069955, 0.10739696],
    [0.08830246, 0.28171884, 0.62997870],
]
TO_LAB = [
    [0.21045426, 0.79361778, -0.00407205],
    [1.9779985, -2.42859221, 0.45059371],
    [0.0259040, 0.78277177, -0.80867577],
]


def linear(colour: str) -> Array:
    values = np.array([int(colour[start : start + 2], 16) for start in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def oklab(rgb: Array) -> Array:
    found: Array = np.array(TO_LAB) @ np.cbrt(np.array(TO_LMS) @ np.clip(rgb, 0, 1))
    return found


def contrast(one: str, other: str) -> float:
    """That of the Web Content Accessibility Guidelines."""
    light, dark = sorted((float(linear(c) @ [0.2126, 0.7152, 0.0722]) + 0.05 for c in (one, other)), reverse=True)
    return light / dark


@pytest.mark.parametrize("sight", SIGHTS)
@pytest.mark.parametrize("display", ["light", "dark"])
@pytest.mark.parametrize("group", [AGENTS, PUBLISHED])
def test_lines_of_a_plot_can_be_told_apart(group: tuple[Colour, ...], display: str, sight: str) -> None:
    # Mutation: one colour for all agents of a protocol.
    seen = [oklab(np.array(SIGHTS[sight]) @ linear(getattr(colour, display))) for colour in group]
    nearest = min(float(np.linalg.norm(one - other)) for one, other in itertools.combinations(seen, 2))
    assert nearest > 0.1, "a step of 0.02 is just visible"


@pytest.mark.parametrize("display", ["light", "dark"])
def test_no_agent_has_nearly_the_colour_of_a_published_one(display: str) -> None:
    # Mutation: two shades of violet.
    seen = [oklab(linear(getattr(colour, display))) for colour in (*AGENTS, *PUBLISHED)]
    assert min(float(np.linalg.norm(one - other)) for one, other in itertools.combinations(seen, 2)) > 0.09


@pytest.mark.parametrize("colour", [*AGENTS, *PUBLISHED])
def test_lines_stand_out_from_their_background(colour: Colour) -> None:
    assert contrast(colour.light, LIGHT["paper"]) >= 3 and contrast(colour.dark, DARK["paper"]) >= 2.5


def test_every_light_colour_has_its_dark_one() -> None:
    for colour in (*AGENTS, *PUBLISHED):
        assert SHADES[colour.light] == colour.dark and SHADES[band(colour.light)] == band(colour.dark)
    assert band("#0a141e") == "rgba(10,20,30,0.25)"

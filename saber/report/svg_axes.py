"""The axes of a plot that is written as SVG: where values lie on the picture, and which ticks they have."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_MARGIN = 0.04  # of an axis without a range, beyond its values


@dataclass(frozen=True)
class Axis:
    """A linear or logarithmic axis, or one of categories."""

    low: float  # logarithms of these two on a logarithmic axis
    high: float
    start: float  # pixels
    end: float
    is_log: bool = False
    categories: tuple[str, ...] = ()

    def place(self, value: Any) -> float:
        """Pixel of a value; those beyond an end lie a little beyond it, too."""
        number = float(self.categories.index(value)) if self.categories else float(value)
        if self.is_log:
            number = math.log10(number) if number > 0 else -math.inf
        share = (number - self.low) / (self.high - self.low)
        return self.start + (self.end - self.start) * min(1.02, max(-0.02, share))


def make_axis(layout: dict[str, Any], values: Sequence[Any], start: float, end: float) -> Axis:
    """Make an axis as plotly's layout describes it, for the values of all traces."""
    categories = tuple(layout.get("categoryarray", ()))
    if "range" in layout:
        low, high = layout["range"]
        return Axis(low, high, start, end, layout.get("type") == "log", categories)
    numbers = [float(value) for value in values] or [0.0, 1.0]
    low, high = min(numbers), max(numbers)
    to_zero = layout.get("rangemode") == "tozero"
    low = min(0.0, low) if to_zero else low
    margin = _MARGIN * ((high - low) or max(1.0, abs(high)))
    return Axis(low if to_zero else low - margin, high + margin, start, end)


def ticks(layout: dict[str, Any], axis: Axis) -> list[tuple[float, str]]:
    """Pixels and texts of the ticks."""
    if axis.categories:
        return [(axis.place(name), name) for name in axis.categories]
    if "tickvals" in layout:
        pairs = zip(layout["tickvals"], layout["ticktext"], strict=True)
        low, high = (10.0**axis.low, 10.0**axis.high) if axis.is_log else (axis.low, axis.high)
        return [(axis.place(value), text) for value, text in pairs if low <= value <= high]
    percent = layout.get("tickformat") == ".0%"
    return [
        (axis.place(value), f"{100 * value:.0f}%" if percent else format_tick(value))
        for value in round_values(axis.low, axis.high)
    ]


def round_values(low: float, high: float, most: int = 6) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten from `low` to `high`, `most` of them at the most."""
    size = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(size * part for part in (1, 2, 5, 10, 20) if (high - low) / (size * part) < most)
    return [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def format_tick(value: float) -> str:
    """Write a value shortly, as in 1.5 M."""
    for size, unit in ((1e9, " B"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:.6g}"

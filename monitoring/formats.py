"""Writes numbers for people, in a few characters whatever their size: any peer may have written them into Redis."""

from collections.abc import Callable

Writer = Callable[[float], str]

_MOST = 1e12  # above which a number is written with an exponent
_YEAR_S = 365 * 24 * 3600
_UNITS = ("B", "kB", "MB", "GB", "TB")


def number(value: float, digits: int = 0) -> str:
    """Write a number, as in "1,234" or "9.2"."""
    return f"{value:,.{digits}f}" if abs(value) < _MOST else f"{value:.1e}"


def rate(value: float) -> str:
    """Write a speed: small ones with a digit after the point."""
    return number(value, 0 if abs(value) >= 100 else 1)


def share(value: float, digits: int = 0) -> str:
    """Write a share of a whole, as in "41 %"."""
    return f"{number(100 * value, digits)} %"


def size(count: float) -> str:
    """Write a number of bytes, as in "1.2 GB"."""
    for unit in _UNITS[:-1]:
        digits = 0 if unit == "B" or round(abs(count), 1) >= 100 else 1
        if round(abs(count), digits) < 1000:
            return f"{count:.{digits}f} {unit}"
        count /= 1000
    return f"{number(count, 1)} {_UNITS[-1]}"


def duration(seconds: float) -> str:
    """Write a time span in its two largest units, as in "45 s", "12 min" and "3 h 20 min"."""
    if seconds >= _YEAR_S:
        return "over a year"
    minutes = round(seconds / 60)
    if round(seconds) < 60:
        return f"{max(0, round(seconds))} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"

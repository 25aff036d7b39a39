"""Writes errors and numbers of things for sentences."""

import difflib
import traceback
from collections.abc import Iterable, Sequence


def one_line(what: object, most: int = 300) -> str:
    """Return a text, or an error's, in printable ASCII without line breaks, cut at `most` characters.

    An error without a text gives the name of its class.
    """
    text = " ".join(str(what).split()) or type(what).__name__
    shown = ascii(text)[1:-1]
    return shown if len(shown) <= most else f"{shown[: most - 6].rstrip()} [...]"


def reason(error: Exception) -> str:
    """Return why a call of the system has failed, in few words."""
    return getattr(error, "strerror", None) or one_line(error)


def name_error(error: BaseException) -> str:
    """Return the class and the text of an unexpected error, in one line."""
    return f"{type(error).__name__}: {one_line(error)}"


def name_exit(error: SystemExit) -> str:
    """Return a line about others' code that has called `sys.exit`, which is no end in good order."""
    frames = traceback.extract_tb(error.__traceback__)
    last = next((frame for frame in reversed(frames) if "_sitebuiltins" not in frame.filename), frames[-1])
    code = f"({one_line(error.code)})" if isinstance(error.code, str) else ""
    place = f"{last.filename}, line {last.lineno}"
    return f"{place}, has called sys.exit{code}: environments and agents must raise an error"


def encodable(text: str) -> str:
    """Return a text in which what is not Unicode, as names of files may be, is written as in Python."""
    return text.encode(errors="backslashreplace").decode()


def counted(number: int, noun: str) -> str:
    """Write a number with its noun, as in "1 run" and "2,400 runs"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def nearest(name: str, known: Iterable[str], most: int = 3, cutoff: float = 0.6) -> list[str]:
    """Return the known names that are close to a wrong one, whatever its case: the closest first, `most` at most."""
    by_lower_case = {one.lower(): one for one in known}
    return [by_lower_case[match] for match in difflib.get_close_matches(name.lower(), by_lower_case, most, cutoff)]


def suggestion(close: Sequence[str], otherwise: str) -> str:
    """Ask whether one of the names that are close to a wrong one was meant; without any, say what else helps."""
    return f"did you mean {' or '.join(close)}?" if close else otherwise

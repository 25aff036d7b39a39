"""The lines that docs/troubleshooting.md quotes are those that the programs print."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.documents import blocks, documents
from tests.processes import ROOT

PROGRAMS = ("agents", "common", "environments", "memory", "monitoring", "options", "programs", "saber")
TEXT = documents()["docs/troubleshooting.md"]


@cache
def printed() -> str:
    """The texts of the programs, cut where a value is put in: each in a line of its own."""
    files = [ROOT / "args.py", *(path for folder in PROGRAMS for path in (ROOT / folder).rglob("*.py"))]
    return "\n" + "\n".join(text for path in files for text in texts(path)) + "\n"


def texts(path: Path) -> Iterator[str]:
    """The texts of a file; Python joins those that stand side by side."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def is_printed(piece: str, *, begun: bool = False) -> bool:
    """Tell whether programs print a piece: a part of a text, or the ends of several that are put together.

    `begun`: the piece goes on after a text's end. Each part has a space, as single words stand everywhere.
    """
    start = "\n" if begun else ""
    if start + piece in printed():
        return True
    ends = [end for end in range(1, len(piece)) if " " in piece[:end] and start + piece[:end] + "\n" in printed()]
    return any(" " in piece[end:] and is_printed(piece[end:], begun=True) for end in ends)


def unknown_pieces(line: str) -> list[str]:
    """The pieces of a quoted line, between what stands in <>, that no program prints."""
    pieces = [piece for piece in re.split(r"<[^<>]*>", line) if re.search(r"\w{2}", piece)]
    return [piece for piece in pieces if not is_printed(piece)]


def quoted(text: str) -> list[str]:
    return [line for block in blocks("", text) if block.language == "text" for line in block.text.splitlines() if line]


def test_the_programs_print_what_troubleshooting_quotes() -> None:
    lines = quoted(TEXT)
    assert len(lines) > 40
    assert [(line, unknown) for line in lines if (unknown := unknown_pieces(line))] == []
    # Mutations: another word, another order of words, and two texts in one that are not put together at their ends.
    assert unknown_pieces("Waiting for <what> (<seconds> seconds)") == [" seconds)"]
    assert unknown_pieces("to Waiting actor <what>") == ["to Waiting actor "]
    assert unknown_pieces("Waiting Redis has lost messages <first>") == ["Waiting Redis has lost messages "]


def test_troubleshooting_quotes_what_it_explains() -> None:
    for part in TEXT.split("\n### ")[1:]:
        heading, _, rest = part.partition("\n")
        assert "```text\n" in rest or "see " in rest or "Nothing" in rest, heading

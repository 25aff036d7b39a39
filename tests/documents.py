"""What the tests of the documents share: their texts, fenced blocks, code spans and links."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.processes import ROOT


class Block(NamedTuple):
    """A fenced block."""

    document: str
    line: int  # of its first line, from 1
    language: str  # empty: shell commands
    text: str


def documents() -> dict[str, str]:
    """The text of every document, by its path."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "results" / "README.md"]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted(pages)}


def blocks(document: str, text: str) -> Iterator[Block]:
    """The fenced blocks of a document."""
    opened: tuple[int, str] | None = None
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if not line.startswith("```"):
            continue
        if opened is None:
            opened = number + 1, line.removeprefix("```").strip()
        else:
            start, language = opened
            yield Block(document, start, language, "\n".join(lines[start - 1 : number - 1]))
            opened = None
    assert opened is None, f"{document}: a block is not closed"


def without_blocks(text: str) -> str:
    return re.sub(r"(?ms)^```.*?^```$", "", text)


def spans(text: str) -> list[str]:
    """The code spans of a document outside of its blocks; one that goes over a line's end is joined."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", without_blocks(text))]


def links(text: str) -> list[str]:
    """The links of a document into the repository."""
    found = re.findall(r"\]\(([^)\s]+)\)", without_blocks(text))
    return [target for target in found if not re.match(r"\w+:", target)]


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    headings = re.findall(r"(?m)^#+ (.*)$", without_blocks(text))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def section(text: str, heading: str) -> str:
    """A document's part from a heading of the second level to the next."""
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]

"""What the tests of the documents share: their texts, fenced blocks, code spans and links."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
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
    pages = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / folder / "README.md" for folder in ("results", "benchmarks/results", "deploy")),
    ]
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


def write_modules(document: str, folder: Path) -> None:
    """Write the Python files that a document shows, each a block whose first line is a comment with its name."""
    for block in blocks(document, (ROOT / document).read_text()):
        if block.language == "python" and (name := re.match(r"# (\w+\.py)\n", block.text)):
            (folder / name[1]).write_text(f"{block.text}\n")


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


class Command(NamedTuple):
    """A shell command of a document, with its variables and what stands for a reader's own values filled in."""

    document: str
    line: int  # from 1; in a block the command's, else the document's first with these words
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.document}:{self.line}: {shlex.join(self.words)}"


# What a reader puts in the place of these.
PLACEHOLDERS = {"<ip>": "10.0.0.7", "<game>": "pong", "<snapshot>": "results/model_pong_2500000.pth"}
SHELL = ("", "bash", "sh", "shell", "console")
_STARTS = (
    ".venv/bin/pip .venv/bin/python apex-actor apex-dashboard apex-eval apex-inference apex-learner apex-report "
    "apex-status apt apt-get bash cat cd "
    "conda cp docker export git mkdir mypy nohup openssl pip printf prometheus pytest python python3 redis-cli "
    "redis-server ruff scp sh source ssh sudo tail tensorboard timeout tmux trackio uv wandb"
).split()
_ASSIGNMENT = re.compile(r"([A-Z_]+)=(.*)", re.DOTALL)


def commands(document: str, text: str) -> list[Command]:
    """All shell commands of a document: those in blocks, in indented lines, and in code spans of two words or more."""
    found: list[Command] = []
    variables: dict[str, str] = {}
    for block in blocks(document, text):
        if block.language in SHELL:
            for line, logical in _logical_lines(block):
                found += _parsed(document, line, logical, variables)
    for span in [*spans(text), *re.findall(r"(?m)^    (\S.*)$", without_blocks(text))]:
        if _is_command(span):
            line = text[: max(0, text.find(span))].count("\n") + 1
            found += _parsed(document, line, span, variables)
    return found


def _logical_lines(block: Block) -> Iterator[tuple[int, str]]:
    """The lines of a block, each with those that continue it, and with its number in the document."""
    gathered, start = "", block.line
    for number, line in enumerate(block.text.splitlines(), block.line):
        start = start if gathered else number
        gathered += line.removesuffix("\\")
        if not line.endswith("\\"):
            yield start, gathered
            gathered = ""
    assert not gathered, f"{block.document}:{start}: nothing follows the last backslash"


def _is_command(span: str) -> bool:
    words = [word for word in span.split() if not re.match(r"[A-Z_]+=", word)]
    return len(words) > 1 and words[0] in _STARTS


def _parsed(document: str, line: int, text: str, variables: dict[str, str]) -> Iterator[Command]:
    """The command of a line, none for a comment; an assignment alone becomes a variable of the document."""
    for placeholder, value in PLACEHOLDERS.items():
        text = text.replace(placeholder, value)
    for name, value in variables.items():
        text = text.replace(f"${name}", value)
    words = shlex.split(text, comments=True)
    if len(words) == 1 and (assigned := _ASSIGNMENT.fullmatch(words[0])):
        variables[assigned[1]] = " ".join(assigned[2].split())
    elif words:
        yield Command(document, line, tuple(words))

"""Answers --version, in every program alike: the release, and the commit that runs."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from rainbow_iqn_apex import __version__

OPTION = "--version"


def text(program: str) -> str:
    """Return the line: the commit is that of the checkout, "unknown" where the program is installed."""
    from rainbow_iqn_apex.common.checkout import commit  # asks git, and only --version needs it

    return f"{program} {__version__} (commit {commit()})"


def answer(program: str, words: Sequence[str] | None = None) -> None:
    """Print the line and leave with exit code 0, if a command line has this option."""
    if OPTION in (sys.argv[1:] if words is None else words):
        print(text(program))
        sys.exit(0)


def offer(parser: argparse.ArgumentParser) -> None:
    """Add the option to a parser that has all others."""
    parser.add_argument(OPTION, action=_Answer, nargs=0, help="print release and commit, and leave")


class _Answer(argparse.Action):
    """Print the line, and leave with exit code 0."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(text(parser.prog))
        parser.exit()

"""Print a script with which a shell completes the options of a command: apex-learner --print-completion bash.

The script is static, so a press of TAB starts no program: a start takes a third of a second. Whoever does not ask for a
script does not wait for shtab, which makes it.
"""

import argparse
from collections.abc import Sequence
from typing import Any

from rainbow_iqn_apex.options.parser import path

OPTION = "--print-completion"
_SHELLS = ("bash", "zsh", "fish", "tcsh")


def offer(parser: argparse.ArgumentParser) -> None:
    """Add the option to a parser that has all others."""
    text = "print a script that completes this command's options in a shell, and leave"
    parser.add_argument(OPTION, choices=_SHELLS, metavar="SHELL", action=_Print, help=f"{text}: {', '.join(_SHELLS)}")


class _Print(argparse.Action):
    """Print the script for the value's shell, and leave with exit code 0."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        _namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        _option_string: str | None = None,
    ) -> None:
        import shtab

        for action in parser._actions:
            if action.type is path:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        print(shtab.complete(parser, str(values)))
        parser.exit()

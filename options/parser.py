"""A parser of argparse that reports a wrong command as all programs do, and what the small programs parse with it."""

import argparse
import re
from pathlib import Path
from typing import NoReturn

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.files import expand_home


class Parser(argparse.ArgumentParser):
    """A parser that raises UserError for a wrong command line."""

    def error(self, message: str) -> NoReturn:
        """Raise UserError with argparse's message."""
        raise UserError(message.removeprefix("argument "))


def devices(text: str) -> tuple[int, ...]:
    """Return the numbers of CUDA devices, as a `type` of argparse."""
    if not re.fullmatch("[0-9]{1,9}(,[0-9]{1,9})*", text):
        raise argparse.ArgumentTypeError(f"expected device numbers separated by commas, got {text!r}")
    return tuple(map(int, text.split(",")))


def path(text: str) -> Path:
    """Return a path, in which ~ stands for the home folder, as a `type` of argparse."""
    try:
        return expand_home(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def port(text: str) -> int:
    """Return the number of a port, as a `type` of argparse."""
    if not re.fullmatch("[0-9]{1,5}", text) or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"expected 1 to 65535, got {text!r}")
    return int(text)

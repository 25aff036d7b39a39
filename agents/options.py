"""Declares options: fields of frozen dataclasses that stand on the command line. Imports nothing slow."""

from dataclasses import field
from typing import TypeVar

T = TypeVar("T")


def option(default: T, text: str, *, shared: bool = False, short: str | None = None, flag: bool = False) -> T:
    """Return a field that is an option; `flag` marks a boolean that is usually given without a value."""
    value: T = field(default=default, metadata={"help": text, "shared": shared, "short": short, "flag": flag})
    return value


def flag_of(name: str) -> str:
    """Return the command line's spelling of a field."""
    return "--" + name.replace("_", "-")

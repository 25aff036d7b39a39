"""What reads a value from outside, one that it takes, and, by what the refusal says, the values that it refuses."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rainbow_iqn_apex.memory.broker.connection import Client

Refused = dict[str, list[Any]]  # regular expressions that the refusals match -> values


@dataclass(frozen=True)
class Place:
    """Where a reader finds what it reads: a folder of its own, and keys of the session's Redis server."""

    folder: Path
    run_name: str
    _request: pytest.FixtureRequest

    @property
    def client(self) -> Client:
        client: Client = self._request.getfixturevalue("client")
        return client

    def file(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path


@dataclass(frozen=True)
class Reader:
    name: str
    read: Callable[[Any, Place], object]
    good: Any  # or the refusals show nothing
    error: type[Exception]
    refused: Refused


def of(read: Callable[[Any], object]) -> Callable[[Any, Place], object]:
    """Return a reader of bytes or values that needs no place."""
    return lambda value, _: read(value)


def field(name: str, *values: Any) -> tuple[str, list[Any]]:
    """Return what is said of a field of a wrong type or range, and changes to a good value that have it."""
    return rf"- at .*\$\.{name}\b", [{name: value} for value in values]


def changed(good: dict[str, Any], refused: Refused) -> Refused:
    """Return the refusals of a good object with the given changes."""
    return {says: [good | change for change in changes] for says, changes in refused.items()}


def as_json(refused: Refused) -> Refused:
    """Return the same as JSON, in which NaN and infinities stand as Python writes them."""
    return {says: [json.dumps(value).encode() for value in values] for says, values in refused.items()}

"""Finds classes and functions outside of this project: by `package.module:name`, or by entry points of packages."""

import importlib
import os
import sys
from functools import cache
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.text import name_error


@cache
def offered(group: str) -> dict[str, str]:
    """Return what installed packages offer in a group of entry points: `package.module:name` by entry point."""
    return {point.name: point.value for point in sorted(entry_points(group=group))}


def module_exists(place: str) -> bool:
    """Return whether `place`, as package.module:name, names a module that can be found; imports its packages."""
    module, colon, name = place.partition(":")
    if not (colon and name.isidentifier() and all(part.isidentifier() for part in module.split("."))):
        return False
    _find_modules_here()
    try:
        return find_spec(module) is not None
    except (Exception, SystemExit):  # noqa: BLE001 - a package's own code failed: `load` names the failure
        return True


def load(option: str, place: str) -> Any:
    """Return the object at `place`, as package.module:name; raises UserError that names the option.

    Modules of the present folder are found, too, after those that are installed; under the start script, which works in
    its own folder, also those of the folder from which it was called.
    """
    module, _, name = place.partition(":")
    _find_modules_here()
    try:
        return getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:  # any error: it is other people's code
        raise UserError(f"{option}: {place} cannot be imported: {name_error(error)}") from error


def searched(place: str) -> str:
    """Return the end of a line about a module that was not found: where it was looked for."""
    module, colon, _ = place.partition(":")
    return f" (module {module!r} is neither installed nor in {' or '.join(_folders())})" if colon else ""


def _find_modules_here() -> None:
    sys.path += [folder for folder in _folders() if folder not in sys.path]


def _folders() -> list[str]:
    """Return the present folder, and the one from which the start script was called if that is another."""
    here = str(Path.cwd())
    return list(dict.fromkeys([here, os.environ.get("RAINBOW_CALLED_FROM", here)]))

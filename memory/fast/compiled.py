"""Compilation by numba, and where its machine code is kept."""

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.misc.appdirs import AppDirs

F = TypeVar("F", bound=Callable[..., Any])
_config: Any = numba.config


def _keeps_code() -> bool:
    """Return whether machine code can be kept for the next process; choose a folder where numba would find none.

    Numba keeps code next to its source, as Python does, or in the user's cache. It fails where it may write to neither,
    as in a read-only installation for a user without a home folder.
    """
    own: Any = AppDirs(appname="numba", appauthor=False)  # type: ignore[no-untyped-call]
    given = [Path(_config.CACHE_DIR)] if _config.CACHE_DIR else []
    if any(map(_is_writable, [*given, Path(__file__).parent / "__pycache__", Path(own.user_cache_dir)])):
        return True
    _config.CACHE_DIR = str(folder) if (folder := _private_folder()) else ""
    return bool(folder)


def _is_writable(folder: Path) -> bool:
    if not folder.is_absolute():  # below a ~ that no entry of passwd expands
        return False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _private_folder() -> Path | None:
    """Return a folder for temporary files that is this user's alone, as numba unpickles what it finds; None without."""
    try:
        folder = Path(tempfile.gettempdir()) / f"rainbow_iqn_apex-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return folder if is_private and _is_writable(folder) else None


_KEEPS_CODE = _keeps_code()


def compiled(signature: str | None = None) -> Callable[[F], F]:
    """Return a decorator; machine code is made at the first call, or at once for a given signature."""
    return cast("Callable[[F], F]", numba.njit(signature, nogil=True, cache=_KEEPS_CODE))

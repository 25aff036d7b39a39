"""Writes files that are never half-written: writes to another name, flushes to the disk, renames."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

from rainbow_iqn_apex.common.errors import UserError


def expand_home(text: str) -> Path:
    """Return the path that a text names, with ~ or ~user at its beginning as a home folder.

    A shell expands neither in `--option=~/x`, nor in a file of settings. Raises ValueError for a user without one.
    """
    found = os.path.expanduser(text)  # noqa: PTH111 - pathlib's own takes ./~x for ~x
    if found.startswith("~"):
        user = found.partition("/")[0]
        raise ValueError(f"{user} has no home folder here; give the whole path, or ./{user} for a name")
    return Path(found)


def is_there(path: Path) -> bool:
    """Return whether a file or folder is there for this user; a name may be too long, or in a folder that is closed."""
    try:
        return path.is_file() or path.is_dir()
    except OSError:
        return False


@contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a binary file whose content becomes `path`, all at once, when the block ends without an exception.

    At every moment, also after a kill -9 or a power cut, `path` is the whole old file or the whole new one:

        with replace_file(path) as file:
            torch.save(state, file)

    An exception in the block leaves the old file as it was. Only a killed process leaves its temporary file behind:
    `.<name>.<random>.tmp` in the same folder, which no pattern such as `last_model_*` or `*.pth` matches. The next
    learner of the game deletes temporary files that learners have left (programs/learner/results_folder.py).
    """
    with written_aside(path, ".tmp") as aside, aside.open("xb") as file:
        yield file


def write_file(path: Path, content: bytes) -> None:
    """Let a file have this content, all at once; see `replace_file`."""
    with replace_file(path) as file:
        file.write(content)


@contextmanager
def written_aside(path: Path, suffix: str) -> Iterator[Path]:
    """Yield a path `.<name>.<random><suffix>` at which to write what becomes `path`; see `replace_file`."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(8)}{suffix}")  # a rename cannot cross file systems
    try:
        yield aside
        with aside.open("rb") as file:
            os.fsync(file.fileno())  # before the rename, or a power cut could leave the new name on an empty file
        aside.replace(path)
    except BaseException as error:  # Ctrl-C too
        aside.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno and not error.filename:
            error.filename = os.fspath(path)  # the error of a full disk names no file
        raise
    sync_folder(path.parent)


def folder_to_write(option: str, folder: Path) -> Path:
    """Make the folder that `option` names; raises UserError if nothing can be written there, before hours are spent."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise UserError(
            f"{option}: expected a folder to write to, got {folder} ({error.strerror}); name another, or make this one "
            "writable"
        ) from error


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

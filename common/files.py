"""Files that are never half-written, and files of others that are read with care."""

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, BinaryIO, cast

from rainbow_iqn_apex.common.errors import UserError

ANYWHERE = Path("/")  # the folder of a file that the user has named itself
CALLED_FROM = "RAINBOW_CALLED_FROM"  # variable: the folder from which the start script was called
MOST_BYTES = 1 << 30  # of a log: ten million episodes
MOST_RECORD_BYTES = 1 << 24  # of what is written about a run or an evaluation, as JSON


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


def open_regular(path: Path, folder: Path) -> BinaryIO:
    """Open a regular file in `folder`, or in a folder below, for reading. Raises OSError.

    Other users may write to a results folder. So a link must not lead out of the folder, which itself may be a link,
    and nothing waits for the writer of a pipe, or reads a device. With `ANYWHERE`, the file has to be a regular one.
    """
    real = Path(os.path.realpath(path, strict=True))  # Path.resolve raises RuntimeError for links in a circle
    root = Path(os.path.realpath(folder, strict=True))
    if not real.is_relative_to(root):
        raise OSError(errno.EXDEV, f"it leads out of {folder}", os.fspath(path))
    place = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        *parents, name = real.relative_to(root).parts or (".",)
        for part in parents:  # one by one: a part may have become a link since it was resolved
            above, place = place, os.open(part, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
            os.close(above)
        if not stat.S_ISREG(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode):
            raise OSError(errno.ENOTSUP, "it is no regular file", os.fspath(path))
        file = os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place), "rb")
    finally:
        os.close(place)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # another one since the look at it
        file.close()
        raise OSError(errno.ENOTSUP, "it is no regular file", os.fspath(path))
    return file


@contextmanager
def named_in_errors(path: Path) -> Iterator[None]:
    """Name the file in an OSError of the block that names none, as those of a full or broken disk."""
    try:
        yield
    except OSError as error:
        if error.errno and not error.filename:
            error.filename = os.fspath(path)
        raise


def read_regular(path: Path, folder: Path, most: int = MOST_BYTES) -> bytes:
    """Return the content of a file in `folder`; raises OSError as `open_regular`, or if too large.

    `most` is the largest size in bytes.
    """
    with named_in_errors(path), open_regular(path, folder) as file:
        if (size := os.fstat(file.fileno()).st_size) > most:
            raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", os.fspath(path))
        return file.read(size)  # not `most`, for which Python would take so much memory


def open_own(path: Path, mode: str) -> IO[bytes]:
    """Open a file that this program writes; a link is not followed, nor a pipe's reader waited for. Raises OSError."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)

    return cast(IO[bytes], open(path, mode, opener=opener))


def lock_file(path: Path) -> IO[bytes]:
    """Return a lock that lasts until it is closed; raises BlockingIOError if another process has it, or OSError."""
    file = open_own(path, "ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        file.close()
        raise
    return file


def short_path(path: Path) -> str:
    """Return a path as a person in the working directory would write it: relative where it lies in there."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def caller_path(path: Path) -> str:
    """Return a path as whoever has called the start script can use it: the script works in a folder of its own."""
    here = str(Path.cwd())
    return short_path(path) if os.environ.get(CALLED_FROM, here) == here else str(path)


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
    with named_in_errors(path):
        try:
            yield aside
            with aside.open("rb") as file:
                os.fsync(file.fileno())  # before the rename, or a power cut could leave the new name on an empty file
            aside.replace(path)
        except BaseException:  # Ctrl-C too
            aside.unlink(missing_ok=True)
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
            f"{option}: expected a folder to write to, got {short_path(folder)} ({error.strerror}); name another, or "
            "make this one writable"
        ) from error


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

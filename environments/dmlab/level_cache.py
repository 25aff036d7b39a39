"""Compiled maps in a folder: the engine takes seconds to compile one, and each episode may need another.

The engine calls `fetch` before it compiles a map, and `write` when it has. Processes of all machines may share the
folder. A map is written once, under another name until it is whole, and none is ever removed: one that is being read
stays. From a certain size on, or once the disk is full, nothing is added.
"""

import os
import shutil
import tempfile
from contextlib import suppress
from errno import EDQUOT, ENOSPC
from hashlib import md5
from pathlib import Path

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.common.text import one_line

_RECOUNT = 64  # maps that are compiled between two counts of the folder, to which others add, too
_LARGEST = 256 * 2**20  # bytes of a map that is taken for one


class LevelCache:
    """Keeps maps in a folder, each under the MD5 of its key."""

    def __init__(self, folder: Path, most_bytes: float) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._bytes = self._asked = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"--dmlab-level-cache: {one_line(error)}") from error

    def fetch(self, key: str, pk3_path: str) -> bool:
        """Copy the map of a key to the engine's file; returns whether there is one."""
        try:
            shutil.copyfile(self._path(key), pk3_path)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise RunError(f"--dmlab-level-cache: cannot read a map: {one_line(error)}") from error
        return True

    def write(self, key: str, pk3_path: str) -> None:
        """Keep the map of a key that the engine has compiled into a file, if there is room and none is there yet."""
        path, source = self._path(key), Path(pk3_path)
        size = source.stat().st_size
        if path.exists() or size > _LARGEST or self._used() + size > self._most_bytes:
            return
        try:
            path.parent.mkdir(exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".new-", delete=False) as file:
                new = Path(file.name)
            try:
                shutil.copyfile(source, new)
                new.chmod(0o644)
                os.link(new, path)  # which, unlike a replacement, leaves a map that has come meanwhile
            finally:
                new.unlink()
        except FileExistsError:
            return
        except OSError as error:
            if error.errno not in (ENOSPC, EDQUOT):
                raise RunError(f"--dmlab-level-cache: cannot keep a map: {one_line(error)}") from error
            self._most_bytes = 0
            return
        self._bytes += size

    def _used(self) -> int:
        if self._asked % _RECOUNT == 0:
            self._bytes = 0
            for path in self._folder.rglob("*"):
                with suppress(FileNotFoundError):  # half-written maps of others come and go
                    self._bytes += path.stat().st_size if path.is_file() else 0
        self._asked += 1
        return self._bytes

    def _path(self, key: str) -> Path:
        name = md5(key.encode(), usedforsecurity=False).hexdigest()
        return self._folder / name[:2] / f"{name[2:]}.pk3"

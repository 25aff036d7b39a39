"""Reads what is appended to a file, and begins anew when the file is replaced or shorter than before."""

import os
from pathlib import Path

from rainbow_iqn_apex.common.files import open_regular

_AT_ONCE = 1 << 22  # bytes: a second's work for who parses them
_COMPARED = 200  # bytes
MOST_BYTES = 1 << 28  # of a file; what lies behind is left out


class Tail:
    """Reads the whole lines of a growing file in a results folder, each once."""

    def __init__(self, path: Path, results: Path) -> None:
        self.path, self._results = path, results
        self._file = (0, 0)  # device and inode
        self._offset = 0
        self._end = b""  # the last of what was read
        self.has_more = False  # for the next call
        self.is_too_long = False  # so that its end is never read

    def read(self) -> tuple[bytes, bool]:
        """Return the next whole lines, and whether the file has begun anew; raises OSError.

        A large file takes several calls.
        """
        self.has_more = self.is_too_long = False  # nor if it is gone
        with open_regular(self.path, self._results) as file:
            found = os.fstat(file.fileno())  # not of the path, where another file may lie by now
            known = self._offset and (found.st_dev, found.st_ino) == self._file
            file.seek(self._offset - len(self._end))
            if anew := not known or file.read(len(self._end)) != self._end:  # or another file has the inode by now
                self._file, self._offset, self._end = (found.st_dev, found.st_ino), 0, b""
                file.seek(0)
            self.is_too_long = found.st_size > MOST_BYTES
            data = file.read(min(_AT_ONCE, MOST_BYTES - self._offset))
        self.has_more = len(data) == _AT_ONCE
        whole = data[: data.rfind(b"\n") + 1]
        if self.has_more and not whole:  # no line of ours is so long
            whole = data
        self._offset += len(whole)
        self._end = (self._end + whole)[-_COMPARED:]
        return whole, anew

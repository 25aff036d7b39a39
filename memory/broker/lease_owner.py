"""Names the process that holds something on the Redis server, for the messages of processes that wait for it.

Any peer with a right to write to the server may have written such a name. So names are read with limits, and shown
without characters that a terminal would obey.
"""

import os
import re
import socket
import time
from dataclasses import dataclass
from datetime import datetime

from rainbow_iqn_apex.common.schema import MOST_SECONDS

MAX_HOST = 253  # characters of a host's name, as DNS has it
_NAME = re.compile(rb"[^|]*\|([0-9]{1,10})\|([0-9]{1,12})\|([!-{}~]{1,%d})" % MAX_HOST)


@dataclass(frozen=True)
class LeaseOwner:
    """A process that holds a lease."""

    pid: int
    since: int  # seconds since 1970, by its own clock
    host: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {local_time(self.since)}"


def name_of_this_process() -> bytes:
    """Return this process's name as `read_lease_owner` reads it; any text without a bar may stand before the name."""
    return f"|{os.getpid()}|{int(time.time())}|{this_host()}".encode()


def read_lease_owner(value: bytes) -> LeaseOwner | None:
    """Return the process that a lease's value names; None if it names none."""
    found = _NAME.fullmatch(value)
    if not found or not is_moment(int(found[2])):
        return None
    return LeaseOwner(int(found[1]), int(found[2]), found[3].decode())


def this_host() -> str:
    """Return this machine's name, in printable ASCII without spaces and bars."""
    return re.sub(r"[^!-{}~]", "?", socket.gethostname())[:MAX_HOST] or "?"


def is_moment(seconds: int) -> bool:
    """Return whether `local_time` can show this time."""
    return 0 <= seconds < MOST_SECONDS


def local_time(seconds: int) -> str:
    """Format a time for log lines, as this machine's local time."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%dT%H:%M:%S")


def printable(text: str) -> str:
    """Return the text with a question mark for each character that a terminal would not show."""
    return "".join(character if character.isprintable() else "?" for character in text)

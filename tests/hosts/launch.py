"""Runs a launcher, with a mutation, that keeps a ledger outside of Redis: commits acknowledged, messages taken in.

python -m tests.hosts.launch ledger/ nothing launch_actor.py [options]
"""

import os
import runpy
import sys
import zlib
from pathlib import Path
from typing import NamedTuple

from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.scripts import Commit, Scripts
from tests.chaos import mutations, notes

ACKNOWLEDGED = "acknowledged.txt"


class Acknowledged(NamedTuple):
    """A message of a commit that an actor was told is done."""

    actor: int
    sequence: int
    checksum: int


def read_acknowledged(folder: Path) -> set[Acknowledged]:
    lines = (folder / ACKNOWLEDGED).read_text().splitlines()
    return {Acknowledged(*map(int, line.split())) for line in lines}


def checksum(message: bytes) -> int:
    return zlib.crc32(message)


def _write_acknowledged(folder: Path) -> None:
    file = os.open(folder / ACKNOWLEDGED, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    append = Scripts.commit

    def commit_and_write(
        self: Scripts, keys: Keys, actor: int, token: bytes, commit: Commit, *, allow_gap: bool
    ) -> int | None:
        known = append(self, keys, actor, token, commit, allow_gap=allow_gap)
        if known is None and not keys.evaluation:
            lines = [f"{actor} {commit.first + i} {checksum(message)}\n" for i, message in enumerate(commit.messages)]
            os.write(file, "".join(lines).encode())
        return known

    Scripts.commit = commit_and_write  # type: ignore[method-assign]


if __name__ == "__main__":
    folder, mutation, sys.argv = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    mutations.apply(mutation)  # first, so that the ledger has what the changed program does
    if sys.argv[0] == "launch_learner.py":
        notes.write_down(folder)
    else:
        _write_acknowledged(folder)
    runpy.run_path(sys.argv[0], run_name="__main__")

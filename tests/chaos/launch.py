"""Runs a launcher with short leases, deadlines and intervals, a mutation, and a folder for a learner's notes.

python -m tests.chaos.launch notes/ nothing launch_learner.py [options]
"""

import runpy
import sys
from pathlib import Path

from rainbow_iqn_apex.memory.broker import connection, lease, lua
from rainbow_iqn_apex.programs.learner import saving as learner
from tests.chaos import mutations, notes

TTL_S = 3.0  # of leases: so that outliving one takes a test no longer than it must
REQUEST_S = 4.0  # deadline of a request, which exceeds a blocking read
SNAPSHOT_S = 1.0  # often, as a log is trimmed with each


def _replace(module: object, name: str, value: object) -> None:
    assert getattr(module, name) != value, f"{name} is what it was"
    setattr(module, name, value)


if __name__ == "__main__":
    folder, mutation, sys.argv = sys.argv[1], sys.argv[2], sys.argv[3:]
    _replace(lease, "TTL_MS", int(TTL_S * 1000))
    _replace(connection, "_SOCKET_TIMEOUT_S", REQUEST_S)
    _replace(lua, "COMMIT", lua.COMMIT.replace("'PX', 10000", f"'PX', {int(TTL_S * 1000)}"))
    _replace(learner, "_SNAPSHOT_INTERVAL_S", SNAPSHOT_S)
    if sys.argv[0] == "launch_learner.py":
        notes.write_down(Path(folder))
    mutations.apply(mutation)
    runpy.run_path(sys.argv[0], run_name="__main__")

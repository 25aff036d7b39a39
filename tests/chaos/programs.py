"""The launchers in processes that are forked from one that has imported everything: a restart takes no seconds."""

import multiprocessing
import os
import runpy
import sys
import threading
from multiprocessing.process import BaseProcess
from pathlib import Path

from rainbow_iqn_apex.memory.broker import connection, lease, lua
from rainbow_iqn_apex.programs.learner import saving as learner
from tests.chaos import mutations, notes
from tests.processes import Process

TTL_S = 3.0  # of leases: so that outliving one takes a test no longer than it must
REQUEST_S = 4.0  # deadline of a request, which exceeds a blocking read
SNAPSHOT_S = 1.0  # often, as a log is trimmed with each

_context = multiprocessing.get_context("forkserver")
# What the programs import, now or with their first update or first episode.
_IMPORTED = (
    "rainbow_iqn_apex.programs.learner.program rainbow_iqn_apex.programs.actor.program "
    "rainbow_iqn_apex.memory.binary_tree rainbow_iqn_apex.environments.gymnasium.environment torch._dynamo"
)
_context.set_forkserver_preload([__name__, *_IMPORTED.split(), "gymnasium.envs.classic_control.cartpole"])
# Of two threads that read an exit code from its pipe, one would find the pipe empty, and say 255. To start a process is
# to read the exit codes of all that have ended, too.
_one_reader = threading.Lock()


class Forked:
    """The handle of a forked process, as `Process` needs it."""

    def __init__(self, process: BaseProcess) -> None:
        assert process.pid
        self.pid = process.pid
        self._process = process

    def poll(self) -> int | None:
        with _one_reader:
            return self._process.exitcode


def start(argv: list[str], output: Path, mutation: str = "", notes_in: Path | None = None) -> Process:
    """Start a launcher; what it writes is appended to `output`. A learner takes its notes in the folder `notes_in`."""
    process = _context.Process(target=_run, args=(argv, output, mutation, notes_in))
    with _one_reader:
        process.start()
    return Process(Forked(process), " ".join(argv[:3]), output)


def _run(argv: list[str], output: Path, mutation: str, notes_in: Path | None) -> None:
    file = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    _replace(lease, "TTL_MS", int(TTL_S * 1000))
    _replace(connection, "_SOCKET_TIMEOUT_S", REQUEST_S)
    _replace(lua, "COMMIT", lua.COMMIT.replace("'PX', 10000", f"'PX', {int(TTL_S * 1000)}"))
    _replace(learner, "_SNAPSHOT_INTERVAL_S", SNAPSHOT_S)
    if notes_in:
        notes.write_down(notes_in)
    if mutation:
        mutations.apply(mutation)
    sys.argv = argv
    runpy.run_path(argv[0], run_name="__main__")


def _replace(module: object, name: str, value: object) -> None:
    assert getattr(module, name) != value, f"{name} is what it was"
    setattr(module, name, value)

"""Programs in processes that are forked from one that has imported everything: a start takes no seconds.

What a program does until it is imported is left out: a test of that starts an interpreter of its own.
"""

import multiprocessing
import os
import runpy
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.imported", __name__])
# Of two threads that read an exit code from its pipe, one would find the pipe empty, and say 255. To start a process is
# to read the exit codes of all that have ended, too.
_one_reader = threading.Lock()


class Place(NamedTuple):
    """Where a program runs."""

    folder: Path
    environment: dict[str, str]
    output: Path  # what is written is appended to it
    errors: Path  # which may be the same


class Forked:
    """The handle of a forked process, as `tests.processes.Process` needs it."""

    def __init__(self, process: BaseProcess) -> None:
        assert process.pid
        self.pid = process.pid
        self._process = process

    def poll(self) -> int | None:
        with _one_reader:
            return self._process.exitcode


def start(words: list[str], place: Place) -> Forked:
    """Start a Python program, as `python words...` would, in a process group of its own."""
    process = _context.Process(target=_run, args=(words, place))
    with _one_reader, _hidden_main():
        process.start()
    forked = Forked(process)
    while forked.poll() is None and not _leads_a_group(forked.pid):
        time.sleep(0.0005)
    return forked


@contextmanager
def _hidden_main() -> Iterator[None]:
    """Hide the module that runs, which a child would import, and run again if it is a script."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _leads_a_group(pid: int) -> bool:
    try:
        return os.getpgid(pid) == pid
    except ProcessLookupError:
        return True


def _run(words: list[str], place: Place) -> None:
    os.setpgid(0, 0)
    for path, number in ((place.output, 1), (place.errors, 2)):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(file, number)
        os.close(file)
    # As Python makes them for a file: a program's lines come when it flushes them.
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # type: ignore[misc] # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # type: ignore[misc] # noqa: SIM115
    multiprocessing.process._parent_process = None  # type: ignore[attr-defined] # a program of its own, as it seems
    os.chdir(place.folder)
    os.environ.clear()
    os.environ.update(place.environment)
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")

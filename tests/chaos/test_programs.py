"""Tests of the forked launchers themselves."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from pathlib import Path

import pytest

from tests.chaos import programs
from tests.processes import Process


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Process:
    """A program that has ended; its exit code was not read yet, and reading takes long enough to come between."""
    program = programs.start(["launch_actor.py"], tmp_path / "out")
    os.kill(program.pid, signal.SIGKILL)
    read: Callable[[int], int] = forkserver.read_signed

    def read_slowly(pipe: int) -> int:
        time.sleep(0.2)
        return read(pipe)

    monkeypatch.setattr(forkserver, "read_signed", read_slowly)
    return program


def test_every_thread_sees_how_a_program_ended(ended: Process) -> None:
    # Mutation: leave the lock out of Forked.poll.
    with ThreadPoolExecutor(4) as pool:
        ends = [pool.submit(_end, ended) for _ in range(4)]
    check({end.result() for end in ends}, ended)


def test_an_end_is_seen_while_another_program_starts(ended: Process, tmp_path: Path) -> None:
    # Mutation: leave the lock out of programs.start.
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(_end, ended)
        time.sleep(0.1)
        programs.start(["launch_actor.py"], tmp_path / "other").kill()
    check({end.result()}, ended)


def check(seen: set[int], program: Process) -> None:
    """Without --id-actor it may have been refused, with exit code 2, before it was killed."""
    assert seen | {program.exit_code} in ({-signal.SIGKILL}, {2})


def _end(program: Process) -> int:
    while (code := program.exit_code) is None:
        time.sleep(0.001)
    return code

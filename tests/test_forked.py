"""Forked programs: what starts them sees every end, whichever thread looks."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from pathlib import Path

import pytest

from tests import forked
from tests.processes import ROOT, clean_environment


def start(folder: Path) -> forked.Forked:
    """Start a program that waits for a learner, without a server: it is refused, or killed before."""
    place = forked.Place(ROOT, clean_environment(), folder / "out", folder / "out")
    return forked.start(["launch_actor.py"], place)


@pytest.fixture
def ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> forked.Forked:
    """A program that has ended; its exit code was not read yet, and reading takes long enough to come between."""
    program = start(tmp_path)
    os.kill(program.pid, signal.SIGKILL)
    read: Callable[[int], int] = forkserver.read_signed

    def read_slowly(pipe: int) -> int:
        time.sleep(0.2)
        return read(pipe)

    monkeypatch.setattr(forkserver, "read_signed", read_slowly)
    return program


def test_every_thread_sees_how_a_program_ended(ended: forked.Forked) -> None:
    # Mutation: leave the lock out of Forked.poll.
    with ThreadPoolExecutor(4) as pool:
        ends = [pool.submit(_end, ended) for _ in range(4)]
    check({end.result() for end in ends}, ended)


def test_an_end_is_seen_while_another_program_starts(ended: forked.Forked, tmp_path: Path) -> None:
    # Mutation: leave the lock out of forked.start.
    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(_end, ended)
        time.sleep(0.1)
        _end(start(tmp_path))
    check({end.result()}, ended)


def check(seen: set[int], program: forked.Forked) -> None:
    """Without --id-actor it may have been refused, with exit code 2, before it was killed."""
    assert seen | {program.poll()} in ({-signal.SIGKILL}, {2})


def _end(program: forked.Forked) -> int:
    while (code := program.poll()) is None:
        time.sleep(0.001)
    return code

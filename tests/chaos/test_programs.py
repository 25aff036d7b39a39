"""Tests of the forked launchers themselves."""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.chaos import programs


def test_every_thread_sees_how_a_program_ended(tmp_path: Path) -> None:
    # Mutation: leave the lock out of Forked.poll.
    for number in range(5):
        program = programs.start(["launch_actor.py", "--ip-redis", "127.0.0.1", "--port-redis", "1"], tmp_path / "out")
        with ThreadPoolExecutor(8) as pool:
            ends = [pool.submit(program.finish) for _ in range(8)]
            program.send(signal.SIGKILL)
        assert [end.result() for end in ends] == [-signal.SIGKILL] * 8, number

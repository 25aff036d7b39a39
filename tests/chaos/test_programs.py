"""Tests of the forked launchers themselves."""

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.chaos import programs
from tests.processes import Process


def test_every_thread_sees_how_a_program_ended(tmp_path: Path) -> None:
    # Mutation: leave the lock out of Forked.poll.
    for number in range(10):
        program = programs.start(["launch_actor.py"], tmp_path / "out")
        with ThreadPoolExecutor(8) as pool:
            ends = [pool.submit(_end, program) for _ in range(8)]
            program.send(signal.SIGKILL)
        seen = {end.result() for end in ends}
        assert seen in ({-signal.SIGKILL}, {2}), number  # 2: without --id-actor it may have been refused before


def _end(program: Process) -> int:
    while (code := program.exit_code) is None:  # without a pause, so that several ask at once
        pass
    return code

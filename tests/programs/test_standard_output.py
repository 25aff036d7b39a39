"""Programs whose standard output takes no more end with exit code 1, without a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import RedisServer
from tests.dashboard import needs_dashboard
from tests.processes import ROOT, clean_environment

COMMANDS = [
    "launch_learner.py --print-completion fish",
    "saber_report.py --print-completion zsh",
    *(f"run_status.py --port-redis {{port}} {options}" for options in ("", "--json", "--json --watch")),
    pytest.param("dashboard.py --print-completion bash", marks=needs_dashboard),
]


def errors(words: list[str], output: int) -> tuple[int, str]:
    """The exit code of a program, and its errors, with its standard output going there."""
    done = subprocess.run(
        [sys.executable, *words], stdout=output, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=clean_environment(),
        check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


def test_nobody_who_reads_ends_a_program_without_a_word() -> None:
    # Mutation: do not put a sink into the place of a pipe that nobody reads.
    reading, writing = os.pipe()
    os.close(reading)
    assert errors(["run_status.py", "--help"], writing) == (1, "")
    os.close(writing)


@pytest.mark.redis
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_ends_a_program_without_a_traceback(redis_server: RedisServer, command: str) -> None:
    # Mutation: leave the flush to Python.
    words = command.format(port=redis_server.port).split()
    with Path("/dev/full").open("w") as full:
        assert errors(words, full.fileno()) == (1, f"{words[0]}: [Errno 28] No space left on device\n")

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
    "test_multiple_seed.py --print-completion bash",
    "saber_report.py --print-completion zsh",
    "run_status.py --help",
    pytest.param("dashboard.py --print-completion bash", marks=needs_dashboard),
]


def errors(words: list[str], output: int) -> tuple[int, str]:
    """The exit code of a program, and its errors, with its standard output going there."""
    done = subprocess.run(
        [sys.executable, *words], stdout=output, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=clean_environment(),
        check=False,
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_nobody_who_reads_and_a_full_disk_end_a_program_without_a_traceback(command: str) -> None:
    # Mutation: leave the flush to Python, or do not put a sink into the place of a pipe that nobody reads.
    words = command.split()
    reading, writing = os.pipe()
    os.close(reading)
    assert errors(words, writing) == (1, "")
    os.close(writing)
    with Path("/dev/full").open("w") as full:
        assert errors(words, full.fileno()) == (1, f"{words[0]}: [Errno 28] No space left on device\n")


@pytest.mark.redis
@pytest.mark.parametrize("options", [[], ["--json"], ["--json", "--watch"]])
def test_so_it_is_with_what_run_status_shows(redis_server: RedisServer, options: list[str]) -> None:
    words = ["run_status.py", "--port-redis", str(redis_server.port), *options]
    with Path("/dev/full").open("w") as full:
        assert errors(words, full.fileno()) == (1, "run_status.py: [Errno 28] No space left on device\n")

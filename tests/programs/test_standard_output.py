"""Programs whose standard output takes no more end with exit code 1, without a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.conftest import RedisServer
from tests.deadline import wait_until
from tests.processes import ROOT, clean_environment

COMMANDS = [
    "launch_learner.py --print-completion fish",
    "saber_report.py --print-completion zsh",
    *(f"run_status.py --port-redis {{port}} {options}" for options in ("", "--json", "--json --watch")),
    "dashboard.py --print-completion bash",
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


@pytest.mark.redis
def test_a_program_without_standard_streams_works_and_stops(redis_server: RedisServer, run_name: str) -> None:
    # Mutation: leave the streams closed: a socket gets the number of the standard output.
    words = f"--port-redis {redis_server.port} --run-name {run_name} --id-actor 0 --env gymnasium:CartPole-v1"
    command = f"exec {sys.executable} launch_actor.py {words} --agent impala <&- >&- 2>&-"
    process = subprocess.Popen(["bash", "-c", command], cwd=ROOT, env=clean_environment())
    try:
        seen = psutil.Process(process.pid)
        wait_until(lambda: [one for one in seen.net_connections() if one.status == "ESTABLISHED"], "its connection")
        assert {one.fd for one in seen.net_connections()}.isdisjoint(range(3))
        process.terminate()
        wait_until(lambda: process.poll() is not None, "its end")
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()

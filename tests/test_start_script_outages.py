"""The start script with the real programs, when what they need is away for a while, or others stop them."""

import signal
from pathlib import Path

import psutil
import pytest

from tests.conftest import RedisServer
from tests.processes import Processes
from tests.small import ENDLESS, FREE
from tests.start_script import free_port, get_on

pytestmark = [pytest.mark.redis, pytest.mark.slow]
OPTIONS = [*ENDLESS, *FREE, *"--nb-actor 2 --windows none --use-running-redis --redis-timeout 4".split()]
WORDS = {"learner": "launch_learner.py", "actor 0": "--id-actor 0 ", "actor 1": "--id-actor 1 "}


def test_what_has_worked_comes_back(
    own_server: RedisServer, processes: Processes, run_name: str, tmp_path: Path
) -> None:
    # Mutations: a program that does not know that it has worked, so that a server that is away is its user's mistake;
    # one try; a process that others have stopped has done its work.
    words = [*OPTIONS, "--port-redis", own_server.port, "--run-name", run_name]
    words += ["--path-to-results", tmp_path / "results"]
    process = processes.start("-m", "tests.fast_start", *words, together=True)
    get_on(process, WORDS)
    own_server.stop(signal.SIGKILL)
    for who in WORDS:
        process.wait_for(f"{who} has ended with exit code 1 and is started again", times=3, seconds=120)
    own_server.start()
    get_on(process, WORDS)
    for who in ("actor 1", "learner"):
        (found,) = [each for each in psutil.Process(process.pid).children() if WORDS[who] in " ".join(each.cmdline())]
        found.terminate()
        process.wait_for(f"{who} has ended with exit code 0 and is started again")
        get_on(process, WORDS)
    process.press_ctrl_c()
    assert process.finish(120) == 0, process.output[-3000:]
    assert "all is stopped and saved" in process.output and "Traceback" not in process.output


def test_the_command_of_a_killed_script_finds_nobody_at_work(
    processes: Processes, run_name: str, tmp_path: Path
) -> None:
    # Mutations: processes that meet the end of who reads them with their next line; a Redis that is taken from them.
    words = [*OPTIONS, "--log-interval", 1_000_000, "--port-redis", free_port(), "--run-name", run_name]
    words = [word for word in words if word != "--use-running-redis"] + ["--path-to-results", tmp_path / "results"]
    killed = processes.start("-m", "tests.fast_start", *words, together=True)
    scores = tmp_path / "results" / "CartPole-v1.csv"
    killed.wait_until(lambda: scores.exists() and scores.read_bytes().count(b"\n") > 500, "episodes", 120)
    killed.send(signal.SIGKILL)
    killed.finish(10)
    successor = processes.start("-m", "tests.fast_start", *words, together=True)
    successor.wait_for("Actor 1 goes on after ", seconds=180)
    successor.press_ctrl_c()
    assert successor.finish(120) == 0, successor.output[-3000:]
    assert "taking back the server" in successor.output and "is already running" not in successor.output

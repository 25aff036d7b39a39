"""The harness for processes: what it reads, what it sends, how long it waits, and that nothing is left behind."""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.deadline import Clock, wait_until
from tests.processes import ROOT, Process, Processes, is_gone, wait_for_ends

SLEEPS = "import time; print('is here', flush=True); time.sleep(600)"
# Starts a helper, and waits; told to end by Ctrl-C alone, and so is the helper.
WITH_HELPER = f"""
import subprocess, sys
helper = subprocess.Popen([sys.executable, "-c", {SLEEPS!r}])
if sys.argv[1:]:
    sys.exit()
try:
    helper.wait()
except KeyboardInterrupt:
    sys.exit(7)
"""


def test_what_hangs_is_not_waited_for(processes: Processes) -> None:
    waits: list[Callable[[Process], object]] = [
        lambda process: process.wait_for("the moon", seconds=0.2),
        lambda process: process.wait_for("is here", times=2, seconds=0.2),
        lambda process: process.wait_until(lambda: False, "the moon", seconds=0.2),
        lambda process: process.finish(0.2),
    ]
    processes.run("-c", "import sys; sys.exit('I am the reason')")
    process = processes.start("-c", SLEEPS)
    process.wait_for("is here")
    for wait in waits:
        with pytest.raises(AssertionError, match=r"(?s)waited 0\.2 s for .*I am the reason.*is here"):
            wait(process)


def test_what_has_ended_is_not_waited_for(processes: Processes) -> None:
    process = processes.start("-c", "print('the last word')")
    process.wait_for("the last word")  # written before it ended, so it came
    process.finish()
    clock = Clock()
    with pytest.raises(AssertionError, match=r"(?s)'the moon' never came.*exit code 0.*the last word"):
        process.wait_for("the moon")
    assert clock.seconds() < 10
    process.terminate()


def helper_of(process: Process) -> psutil.Process:
    process.wait_for("is here")
    (helper,) = process.children()
    return helper


def test_signals_reach_whom_they_are_for(processes: Processes) -> None:
    # Mutations: a Ctrl-C for the process alone; a `kill` of the group.
    process = processes.start("-c", WITH_HELPER)
    helper = helper_of(process)
    process.press_ctrl_c()
    assert process.finish() == 7
    wait_for_ends([helper])
    for send, code in ((Process.terminate, -signal.SIGTERM), (Process.kill, -signal.SIGKILL)):
        process = processes.start("-c", WITH_HELPER)
        helper = helper_of(process)
        send(process)
        assert process.finish() == code
        time.sleep(0.1)
        assert not is_gone(helper)


def test_nothing_is_left_behind() -> None:
    # Mutation: `kill` for `kill_group`; the folder of the outputs is not removed.
    with Processes() as processes:
        process = processes.start("-c", WITH_HELPER)
        helper = helper_of(process)
        ended = processes.start("-c", WITH_HELPER, "at once")
        ended.finish()
        wait_until(lambda: "is here" in ended.output, "the orphan")
        folder = Path(processes._folder.name)
    assert process.exit_code == -signal.SIGKILL
    wait_for_ends([helper])
    groups = {process.pid for process in (process, ended)}
    wait_until(lambda: not groups & living_groups(), "the orphan's end")
    assert not folder.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "workers"),
    [
        (signal.SIGINT, 0),
        (signal.SIGTERM, 0),
        (signal.SIGINT, 2),
        (signal.SIGTERM, 2),
    ],
)
def test_tests_that_are_told_to_end_leave_nothing_behind(
    processes: Processes, tmp_path: Path, number: signal.Signals, workers: int
) -> None:
    # Mutations: an empty `pytest_configure`; an empty `pytest_sessionfinish`, with which the workers end 5 s later.
    test = tmp_path / "test_sleeps.py"
    sleep = f"""(processes, tmp_path):
    process = processes.start('-c', {SLEEPS!r})
    (tmp_path / 'started').touch()
    process.finish(600)
"""
    test.write_text(f"def test_1{sleep}def test_2{sleep}")
    options = ("-p", "tests.conftest", "-c", ROOT / "pyproject.toml", "-n", workers, "--basetemp", tmp_path / "theirs")
    tests = processes.start("-m", "pytest", *options, test)
    tests.wait_until(lambda: len(list(tmp_path.rglob("started"))) == (workers or 1), "the processes of the tests")
    children = tests.children()
    if number == signal.SIGINT:
        tests.press_ctrl_c()  # which the workers feel as well
    else:
        tests.send(number)
    assert tests.finish(5) == pytest.ExitCode.INTERRUPTED, tests.output  # a deadline knows how long they have queued
    wait_for_ends(children)


def living_groups() -> set[int]:
    """List the groups of all processes but zombies."""
    groups = set()
    for process in psutil.process_iter():
        with suppress(ProcessLookupError):
            if not is_gone(process):
                groups.add(os.getpgid(process.pid))
    return groups

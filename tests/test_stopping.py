"""Signals to a program that loads, and to one that works: no traceback, no deadlock, none that is lost."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from rainbow_iqn_apex.common.signals import describe_end
from tests.processes import ROOT, Ended, Processes, clean_environment, run
from tests.start_script import free_port

# The main thread has the lock of the event, or is about to write, when the signal comes.
WORKS = """
import os, signal, threading
from rainbow_iqn_apex.programs.process import stop_on_signals
stop = stop_on_signals()
with stop._cond:
    os.kill(os.getpid(), signal.{number})
print("goes on", flush=True)
assert stop.wait(60)
[thread.join() for thread in threading.enumerate() if thread.name == "stop"]
os.kill(os.getpid(), signal.{number})
print("is asked twice", flush=True)
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_never_waits_for_what_it_interrupts(number: str) -> None:
    # Mutation: a handler that sets the event itself, which then waits for the lock of the main thread for ever.
    told = ["Stopping: saving what there is", "goes on", "is asked twice"]
    code, out, errors = run("-c", WORKS.format(number=number))
    assert (code, sorted(out.splitlines()), errors) == (0, told, "")


def test_a_signal_that_comes_while_no_descriptor_is_set_is_not_lost() -> None:
    # Mutation: a handler that does nothing, as Python itself writes to the descriptor.
    works = WORKS.partition("with stop")[0]
    asks = "signal.set_wakeup_fd(-1)\nos.kill(os.getpid(), signal.SIGTERM)\nassert stop.wait(60)\n"
    assert run("-c", works + asks).code == 0


@pytest.mark.parametrize("is_asked", [False, True])
@pytest.mark.parametrize("make", [os.pipe, pty.openpty], ids=["pipe", "terminal"])
def test_a_program_saves_when_nobody_reads_its_lines_any_more(
    make: Callable[[], tuple[int, int]], is_asked: bool
) -> None:
    """The reader ends before anything is asked, or as `tee` does: a moment after the Ctrl-C that asks both to stop."""
    # Mutations: leave the streams as they are, so that the next line is an error; look at them at the request alone.
    asks = "os.kill(os.getpid(), signal.SIGTERM)\n" * is_asked
    waits = "assert stop.wait(60)\nwhile os.fstat(1).st_rdev != os.stat(os.devnull).st_rdev: pass\n"
    saves = "print('saves', flush=True)\nprint('and complains', file=sys.stderr, flush=True)\n"
    works = WORKS.partition("with stop")[0].replace("import os", "import os, sys")
    reading, writing = make()
    process = subprocess.Popen(
        [sys.executable, "-c", works + asks + waits + saves], stdout=writing, stderr=writing, cwd=ROOT
    )
    try:
        os.close(writing)
        if is_asked:
            assert os.read(reading, 1)  # of the line about the request
        os.close(reading)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def test_a_program_under_nohup_outlives_its_terminal() -> None:
    # Mutation: handle SIGHUP whatever the program was started with.
    hung_up = "os.kill(os.getpid(), signal.SIGHUP)\nassert not stop.wait(0.5)\n"
    ignored = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    works = WORKS.partition("with stop")[0]
    assert run("-c", ignored + works + hung_up) == Ended(0, "", "")


@pytest.mark.parametrize(
    ("program", "number"),
    [
        ("launch_learner.py", signal.SIGINT), ("launch_actor.py", signal.SIGTERM),
        ("test_multiple_seed.py", signal.SIGINT),
    ],
)  # fmt: skip
def test_a_launcher_that_loads_ends_without_a_word(processes: Processes, program: str, number: signal.Signals) -> None:
    process = processes.start(program, fresh=True)
    process.wait_until(lambda: "/torch/" in Path(f"/proc/{process.pid}/maps").read_text(), "PyTorch")
    process.send(number)
    assert process.end() == Ended(-number, "", "")


SLOW = """
import os, sys, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            print("loads", flush=True)
            while not os.path.exists({asked!r}):
                time.sleep(0.05)

sys.meta_path.insert(0, Slow())
"""
START = "rainbow_iqn_apex.programs.start"
CARTPOLE = ["--env", "gymnasium:CartPole-v1", "--agent", "reinforce", "--windows", "none"]


@pytest.mark.parametrize(
    ("words", "module", "code"),
    [
        (["launch_learner.py"], "torch", 143),
        (["launch_actor.py", "--id-actor", "0"], "torch", 143),
        (["launch_inference.py"], "torch", 143),
        (["test_multiple_seed.py", "--model", "{folder}/sweep.yaml"], "torch", 143),
        (["dashboard.py"], "uvicorn", 143),
        (["run_status.py"], "rainbow_iqn_apex.monitoring.terminal.show", 143),
        (["saber_report.py", "nowhere"], "rainbow_iqn_apex.saber.report.program", 143),
        (["sweep.py", "{folder}/sweep.yaml", "--path-to-results={folder}"], "rainbow_iqn_apex.programs.sweep.plan", 0),
        (["-m", START, "--path-to-results={folder}", "--port-redis={port}", *CARTPOLE], f"{START}.program", 0),
    ],
)
def test_sigterm_to_process_1_is_never_lost(
    processes: Processes, tmp_path: Path, words: list[str], module: str, code: int
) -> None:
    # Mutation: the signal's default action, which Linux leaves out for process 1 of a container.
    asked = tmp_path / "asked"
    (tmp_path / "sitecustomize.py").write_text(SLOW.format(module=module, asked=str(asked)))
    (tmp_path / "sweep.yaml").write_text("environments: [gymnasium:CartPole-v1]\nagents: [reinforce]\n")
    port = free_port()
    environment = clean_environment() | {"PYTHONPATH": str(tmp_path)}
    words = [word.format(folder=tmp_path, port=port) for word in words]
    assert stop_process_1(processes, [sys.executable, *words], environment, asked) == code


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("start_learning_atari.sh", 143),
        ("deploy/kubernetes/until_finished.sh", 75),
        ("deploy/kubernetes/keep_cluster.sh", 0),
    ],
)
def test_a_script_that_is_process_1_ends(processes: Processes, tmp_path: Path, script: str, code: int) -> None:
    # Mutation: no trap, or one that comes later.
    asked = tmp_path / "asked"
    waits = f"until [ -e '{asked}' ]; do sleep 0.05; done"
    (tmp_path / "start_learning_atari.sh").write_text((ROOT / "start_learning_atari.sh").read_text())
    (tmp_path / "make_environment.sh").write_text(f"echo loads; {waits}\n")
    for name in ("python", "getent"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho loads >&3; {waits}; exit 1\n")
        (tmp_path / name).chmod(0o755)
    environment = clean_environment() | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RUN": "rainbow"}
    place = tmp_path if script == "start_learning_atari.sh" else ROOT
    command = ["bash", "-c", 'exec 3>&1; exec bash "$@"', "bash", str(place / script), "python", "launch_learner.py"]
    assert stop_process_1(processes, command, environment, asked) == code


def stop_process_1(processes: Processes, command: list[str], environment: dict[str, str], asked: Path) -> int:
    """Start a program as process 1, send it SIGTERM once it has printed that it loads, and return its exit code.

    It loads until the file `asked` is there.
    """
    space = ["unshare", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*space, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no namespace of processes can be made here: that needs root")
    process = processes.start(*space[1:], *command, program=space[0], environment=environment, together=True)
    process.wait_for("loads")
    (first,) = psutil.Process(process.pid).children()
    first.terminate()
    asked.touch()
    return process.finish()


def test_an_end_is_described_by_its_signal() -> None:
    cases = {0: "has ended with exit code 0", 1: "has ended with exit code 1", 255: "has ended with exit code 255"}
    cases |= dict.fromkeys((-9, 137), "was killed by SIGKILL") | dict.fromkeys((-11, 139), "was killed by SIGSEGV")
    assert {code: describe_end(code) for code in cases} == cases

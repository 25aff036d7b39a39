"""Signals to a program that loads, and to one that works: no traceback, no deadlock."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# The main thread has the lock of the event, or is about to write, when the signal comes.
WORKS = """
import os, signal, threading
from programs import stopping
stop = stopping.stop_on_signals()
with stop._cond:
    os.kill(os.getpid(), signal.{number})
print("goes on", flush=True)
assert stop.wait(60)
[thread.join() for thread in threading.enumerate() if thread.name == "stop"]
os.kill(os.getpid(), signal.{number})
print("is asked twice", flush=True)
"""
LOADS = """
import os, signal
from programs import stopping
stopping.end_at_once()
os.kill(os.getpid(), signal.{number})
print("goes on")
"""


def run(program: str, number: str) -> tuple[int, list[str], str]:
    command = [sys.executable, "-c", program.format(number=number)]
    # Unbuffered, Python writes a line's end apart, and that of another line may come before it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, sorted(done.stdout.splitlines()), done.stderr


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_signal_never_waits_for_what_it_interrupts(number: str) -> None:
    # Mutation: a handler that sets the event itself, which then waits for the lock of the main thread for ever.
    told = ["Stopping: saving what there is", "goes on", "is asked twice"]
    assert run(WORKS, number) == (0, told, "")


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_program_that_loads_ends_without_a_word(number: str) -> None:
    assert run(LOADS, number) == (-signal.Signals[number], [], "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("program", ["launch_learner.py", "launch_actor.py", "test_multiple_seed.py"])
def test_a_launcher_that_loads_ends_without_a_word(program: str, number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, program], cwd=ROOT, stdout=-1, stderr=-1, text=True) as process:
        while "/torch/" not in Path(f"/proc/{process.pid}/maps").read_text():
            assert process.poll() is None
        process.send_signal(number)
        assert process.communicate(timeout=60) == ("", "")
        assert process.returncode == -number

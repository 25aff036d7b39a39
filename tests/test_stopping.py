"""Signals to a program that loads, and to one that works: no traceback, no deadlock."""

import signal
from pathlib import Path

import pytest

from tests.processes import Ended, Processes, run

# The main thread has the lock of the event, or is about to write, when the signal comes.
WORKS = """
import os, signal, threading
from rainbow_iqn_apex.programs import stopping
stop = stopping.stop_on_signals()
with stop._cond:
    os.kill(os.getpid(), signal.{number})
print("goes on", flush=True)
assert stop.wait(60)
[thread.join() for thread in threading.enumerate() if thread.name == "stop"]
os.kill(os.getpid(), signal.{number})
print("is asked twice", flush=True)
"""


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_signal_never_waits_for_what_it_interrupts(number: str) -> None:
    # Mutation: a handler that sets the event itself, which then waits for the lock of the main thread for ever.
    told = ["Stopping: saving what there is", "goes on", "is asked twice"]
    code, out, errors = run("-c", WORKS.format(number=number))
    assert (code, sorted(out.splitlines()), errors) == (0, told, "")


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

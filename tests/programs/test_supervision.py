"""Child processes: their lines, their end, and whether they are started again."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from rainbow_iqn_apex.common.errors import Stopped
from rainbow_iqn_apex.programs.process import StopRequest
from rainbow_iqn_apex.programs.start.program import lines_of
from rainbow_iqn_apex.programs.start.screen import say
from rainbow_iqn_apex.programs.supervision import Command, Function, Lines, OpenWindow, Process, RestartPolicy
from tests.deadline import wait_until
from tests.processes import wait_for_ends

QUESTION = b"Go on? "


def python(text: str, open_window: OpenWindow = lambda _name, _process_id: None) -> Command:
    lines = Lines(lines_of("actor 0").show, open_window=open_window, question=QUESTION)
    return Command("actor 0", [sys.executable, "-c", text], lines)


def started(text: str) -> Command:
    process = python(text)
    process.start()
    return process


def end_of(process: Process) -> int | None:
    wait_until(lambda: not process.runs(), "the end of the process")
    return process.exit_code


@pytest.mark.parametrize(
    ("text", "code"), [("", 0), ("exit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137), ("exit(200)", 200)]
)
def test_the_exit_code_is_that_of_a_shell(text: str, code: int) -> None:
    assert end_of(started(text)) == code


def test_every_line_is_prefixed_the_unfinished_last_one_too(capfd: pytest.CaptureFixture[str]) -> None:
    end_of(started("import sys; print('one\\n\\nthree', file=sys.stderr); print('four', end='')"))
    assert capfd.readouterr().out == "[actor 0] one\n[actor 0] \n[actor 0] three\n[actor 0] four\n"


def test_a_process_has_a_session_of_its_own_and_nothing_to_read() -> None:
    assert end_of(started("import os, sys; sys.exit(os.getsid(0) != os.getpid() or sys.stdin.read() != '')")) == 0


@pytest.mark.parametrize(
    ("stopping", "words"), [(False, b"actor 0 has ended with exit code 3. " + QUESTION), (True, b"")]
)
def test_a_window_of_a_process_that_has_failed_waits_for_its_reader(stopping: bool, words: bytes) -> None:
    reading, writing = os.pipe()
    text = "import signal, time\nsignal.signal(15, lambda *_: exit(3))\nprint('here')\ntime.sleep(1000)"
    process = python(text, lambda *_: writing)
    process.start()
    with os.fdopen(reading, "rb") as window:
        assert window.readline() == b"here\n"
        if stopping:
            process.ask_to_stop()
        else:
            os.kill(process.process_id, signal.SIGTERM)
        assert end_of(process) == 3
        assert window.read() == words, "and it is closed"
    assert not process.has_stopped_in_order()


def test_helpers_that_a_process_leaves_behind_are_ended(capfd: pytest.CaptureFixture[str]) -> None:
    end_of(started("import subprocess; print(subprocess.Popen(['sleep', '1000']).pid)"))
    pid = int(capfd.readouterr().out.removeprefix("[actor 0] "))
    with suppress(psutil.NoSuchProcess):
        wait_for_ends([psutil.Process(pid)])


def test_a_process_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    process = started(
        f"import pathlib, signal, time; signal.signal(15, signal.SIG_IGN); pathlib.Path({str(ready)!r}).touch()\n"
        "while True: time.sleep(1)"
    )
    wait_until(ready.exists, "the process")
    process.ask_to_stop()
    assert process.runs()
    process.kill()
    assert process.exit_code == 137


def test_a_request_that_comes_before_it_listens_is_heeded() -> None:
    process = started("import time; time.sleep(1000)")
    process.ask_to_stop()
    assert end_of(process) == 143
    assert process.has_stopped_in_order()


@pytest.mark.parametrize(
    ("code", "lived", "restarts", "may", "may_later"),
    [
        (0, 100, 0, False, False),  # stopped or finished
        (2, 100, 0, False, False),  # a wrong command
        (7, 4, 0, False, True),  # failed at once
        (7, 6, 0, True, True),
        (137, 0, 0, True, True),  # killed
        (137, 0, 5, False, True),  # again and again
        (7, 59, 5, False, True),
        (7, 61, 5, True, True),  # it has worked in between
        (7, 1, 19, False, True),
        (7, 1, 20, False, False),  # a quarter of an hour
    ],
)
def test_who_is_started_again(code: int, lived: float, restarts: int, may: bool, may_later: bool) -> None:
    """`may_later` is of a process that has worked before: what it lacks has been there."""
    policy = RestartPolicy()
    assert policy.allows(code, lived, restarts, has_worked=False) == may
    assert policy.allows(code, lived, restarts, has_worked=True) == may_later


def test_a_process_that_has_worked_is_told_so_and_given_time() -> None:
    # Mutations: no pause, or one after work as well; a pause that grows without end; tell it from the beginning.
    now = 1000.0
    text = "import os; exit('RAINBOW_HAS_WORKED' in os.environ)"
    process = Command("actor 0", [sys.executable, "-c", text], lines_of("actor 0"), clock=lambda: now)
    codes, pauses = [], []
    process.start()
    for lived in (0, 60, *[0] * 9):
        now += lived
        codes.append(end_of(process))
        while not process.is_due():
            now += 1
        pauses.append(now - process.ended)
        process.start()
    process.kill()
    assert codes == [0, 0, *[1] * 9]
    assert pauses == [0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_restarts_are_counted_until_a_process_has_worked() -> None:
    process = started("import os; os.kill(os.getpid(), 9)")
    for _ in range(5):
        end_of(process)
        assert process.may_restart()
        process.start()
    end_of(process)
    assert not process.may_restart()
    process.started -= 60
    assert process.may_restart()
    process.start()
    end_of(process)
    assert process.may_restart(), "counted anew"


def test_a_command_that_cannot_be_started_has_ended() -> None:
    process = Command("actor 0", ["/nowhere"], lines_of("actor 0"))
    with pytest.raises(OSError, match="/nowhere"):
        process.start()
    assert (process.runs(), process.exit_code, process.may_restart()) == (False, 127, False)
    process.has_worked = True
    assert process.may_restart()


def fail_if_ctrl_c_would_end_it() -> None:
    sys.exit(signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def start_another() -> None:
    other = multiprocessing.Process(target=print)
    other.start()
    other.join()


@pytest.mark.parametrize("function", [fail_if_ctrl_c_would_end_it, start_another])
def test_a_function_starts_without_ctrl_c_and_may_start_processes(function: Callable[[], None]) -> None:
    # Mutations: leave the signal to Python, which prints a traceback; a daemonic process, which may have no children.
    process = Function("a function", function, ())
    process.start()
    assert end_of(process) == 0


def test_lines_that_nobody_reads_do_not_stop_a_process() -> None:
    # Mutation: _write without suppress(OSError).
    reading, closed = os.pipe()
    os.close(reading)
    process = python("for _ in range(20000): print('a line')", lambda *_: closed)
    process.start()
    assert end_of(process) == 0


def test_lines_of_threads_are_not_mixed(capfd: pytest.CaptureFixture[str]) -> None:
    def say_often() -> None:
        for _ in range(200):
            say("x" * 200)

    threads = [threading.Thread(target=say_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(capfd.readouterr().out.splitlines()) == {"start_learning_atari: " + "x" * 200}


@pytest.fixture
def signals() -> Iterator[None]:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_every_signal_is_a_request_to_stop(number: signal.Signals) -> None:
    stop = StopRequest()
    stop.listen()
    stop.pause()
    os.kill(os.getpid(), number)
    os.kill(os.getpid(), number)
    with pytest.raises(Stopped):
        stop.pause()


@pytest.mark.usefixtures("signals")
def test_what_nohup_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop = StopRequest()
    stop.listen()
    os.kill(os.getpid(), signal.SIGHUP)
    time.sleep(0)
    stop.pause()

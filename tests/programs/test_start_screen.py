"""The start script on a terminal: one picture of the whole run below the lines of its processes."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.start_script import Workplace, copy_project
from tests.terminal import Terminal

# Prints lines, and saves when it shall stop; the learner writes the run's record, and reports for all.
STAND_IN = """
import os, signal, sys, time
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
learns = sys.argv[0] == "launch_learner.py"
if learns:
    from rainbow_iqn_apex import args
    from rainbow_iqn_apex.memory.broker.connection import connect
    from rainbow_iqn_apex.memory.broker.reports import ReportStore
    from rainbow_iqn_apex.memory.broker.record import RunStatus, record_fields
    from rainbow_iqn_apex.memory.broker.keys import Keys
    from rainbow_iqn_apex.monitoring.report import Report, encode
    given = args.parse(sys.argv[1:], "stand-in", "")
    client = connect(given.host_redis, given.port_redis)
    keys = Keys(given.name, "run")
    began = time.time() - 60
    settings = {"nb_actor": given.nb_actor, "T_max": given.T_max}
    values = {"time/progress": 0.413, "train/timesteps": 413.0, "time/remaining": 750.0, "share/update": 0.62}
line = 0
while not stop:
    if learns:
        now = time.time()
        status = RunStatus("run", "running", settings, 413, 500, written=int(now))
        client.hset(Keys(given.name, "").run, mapping=record_fields(status, {}))
        for actor in (None, 0):
            role = "learner" if actor is None else "actor"
            report = Report(role, 0, "here", os.getpid(), began, now, values=values)
            ReportStore(client, keys).write(actor, encode(report))
    line += 1
    print("line", line, flush=True)
    time.sleep(0.2)
print("has saved", flush=True)
"""
OPTIONS = ("--windows", "none", "--T-max", "100000", "--game", "pong")


@pytest.fixture
def workplace(tmp_path: Path) -> Iterator[Workplace]:
    folder = tmp_path / "copy"
    copy_project(folder, STAND_IN)
    place = Workplace(folder)
    yield place
    place.close()


def on_terminal(workplace: Workplace, *more: str) -> Terminal:
    program, *words = workplace.command(*OPTIONS, *more)
    return Terminal(words, program=program, environment=workplace.environment, cwd=workplace.folder)


def test_a_terminal_shows_the_whole_run_below_the_lines_of_its_processes(workplace: Workplace) -> None:
    with on_terminal(workplace, "--nb-actor", "2") as terminal:
        terminal.wait_for(r"╭─ run pong: running ─+╮\n│ [━╸╺]+ +41\.3 %  T = 413 of 100,000  12 min left │\n")
        terminal.wait_for(r"│ ! actor 1 has not reported +│")
        terminal.wait_for(r"└ update +[━╸╺]+ +62 %")
        terminal.wait_for(r"actor 0 +working ")
        terminal.wait_for(r"\] line \d+\n╭─ run pong")
        for who in ("learner", "actor 0", "actor 1"):
            terminal.wait_for(rf"\[{who}\] line 1")  # from now on it saves when it shall stop
        assert terminal.display.cursor_is_visible
        terminal.type("\x03")
        assert terminal.finish() == 0
        assert not set("╭│╰━╸╺") & set(terminal.output), "nothing is left of the picture"
        for who in ("learner", "actor 0", "actor 1"):
            numbers = [int(number) for number in re.findall(rf"(?m)^\[{who}\] line (\d+)$", terminal.output)]
            assert numbers == list(range(1, len(numbers) + 1)), "no line is lost or broken"
            assert f"\n[{who}] has saved\n" in terminal.output
        assert "\nstart_learning_atari: all is stopped and saved\n" in terminal.output
    workplace.assert_nothing_left()


@pytest.mark.slow
def test_a_fault_of_the_picture_ends_no_run_and_is_told_once(workplace: Workplace) -> None:
    with (workplace.folder / "monitoring" / "terminal" / "pictures.py").open("a") as file:
        file.write("\n\ndef run_picture(*_):\n    raise ZeroDivisionError('no\\nrate')\n")
    with on_terminal(workplace) as terminal:
        terminal.wait_for(r"start_learning_atari: the run cannot be drawn \(ZeroDivisionError: no rate\)")
        lines = terminal.output.count("] line ")
        terminal.wait_until(lambda: terminal.output.count("] line ") > lines + 20, "more lines")
        terminal.type("\x03")
        assert terminal.finish() == 0
        assert terminal.output.count("ZeroDivisionError") == 1
        assert "Traceback" not in terminal.output
    workplace.assert_nothing_left()


@pytest.mark.slow
def test_a_pipe_gets_lines_alone(workplace: Workplace) -> None:
    workplace.start(*OPTIONS)
    workplace.wait_for_line(r"\[learner\] line 12")
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    assert not set("\x1b╭│╰━╸╺") & set(workplace.output)

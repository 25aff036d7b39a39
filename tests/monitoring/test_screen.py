"""What people see on a terminal while a run is made: the programs, on real terminals."""

import os
import re
import signal
from pathlib import Path

import pytest

from tests.processes import Processes
from tests.small import CARTPOLE, TINY
from tests.terminal import Terminal

# Prints lines from two threads and draws in between, until Ctrl-C.
DRAWS = """
import threading, time
from rich.panel import Panel
from rainbow_iqn_apex.common.errors import Stopped
from rainbow_iqn_apex.monitoring.report import Report
from rainbow_iqn_apex.monitoring.terminal.screen import drawn
from rainbow_iqn_apex.programs.process import stop_on_signals
stop = stop_on_signals()
print("begins")
with drawn(lambda report: Panel(f"picture {report.written:.0f} " + "━" * 20)) as draw:
    def tell(who):
        for number in range(40):
            print(who, number, "x" * (100 if number == 7 else 1))
            time.sleep(0.005)
    threads = [threading.Thread(target=tell, args=(who,)) for who in ("one", "two")]
    [thread.start() for thread in threads]
    for number in range(60):
        draw(Report("learner", 0, "host", 1, 0.0, float(number)))
        time.sleep(0.004)
    [thread.join() for thread in threads]
    print("escapes", "\\x1b[31mred", "\\ttab")
    while not stop.is_set():
        draw(Report("learner", 0, "host", 1, 0.0, 99.0))
        time.sleep(0.01)
    [thread.join() for thread in threading.enumerate() if thread.name == "stop"]  # which has told so by then
    print("saves")
    draw(Report("learner", 0, "host", 1, 0.0, 100.0))
print("ends")
"""


@pytest.mark.parametrize("how", ["\x03", signal.SIGTERM, signal.SIGKILL])
def test_lines_go_above_the_picture_and_the_terminal_stays_sane(how: str | signal.Signals) -> None:
    # Mutations: write the line about stopping past the screen; hide the cursor; share a begun line among threads.
    with Terminal(["-c", DRAWS]) as terminal:
        terminal.wait_for("picture 99")
        assert re.search("escapes \\?\\[31mred +tab", terminal.output)
        if isinstance(how, str):
            terminal.type(how)
        else:
            os.kill(terminal.pid, how)
        assert terminal.finish() == (-how if how == signal.SIGKILL else 0)
        lines, display = terminal.output.split("\n"), terminal.display
    assert (display.cursor_is_visible, display.column) == (True, 0)
    told = [line for line in lines if line.startswith(("one", "two"))]
    assert sorted(told) == sorted(
        f"{who} {n} {'x' * (80 - 6 if n == 7 else 1)}" for who in ("one", "two") for n in range(40)
    )
    if how == signal.SIGKILL:
        assert terminal.output.count("picture") == 1, "the last one stays"
    else:
        assert "picture" not in terminal.output
        assert lines[-3:] == ["Stopping: saving what there is", "saves", "ends"]


@pytest.mark.slow
@pytest.mark.redis
def test_learner_and_actors_draw_on_a_terminal_and_print_plain_lines_elsewhere(
    processes: Processes, redis_port: int, run_name: str, tmp_path: Path
) -> None:
    small = "--nb-actor 2 --learn-start 200 --log-interval 1000 --weight-synchro-frequency 40 --T-max 1000000".split()
    run = ["--port-redis", str(redis_port), "--run-name", run_name, "--path-to-results", str(tmp_path)]
    options = [*CARTPOLE, *TINY, *small, *run]
    with (
        Terminal(["launch_learner.py", *options]) as learner,
        Terminal(["launch_actor.py", "--id-actor", "0", *options]) as actor,
    ):
        piped = processes.start("launch_actor.py", "--id-actor", "1", *options)
        learner.wait_for(r"\] T = \d+000 / 1000000\nTime between 2 log_interval for learner .*\nScore .*\n?.* left\n")
        learner.wait_for(r"╭─ learner of run .*╮\n│ [━╸╺]+ +\d\.\d %  .* left │\n")
        learner.wait_for(r"score +\d.* time .*\n.*├ \w+ .* \d+ %")
        actor.wait_for(r"\] T = \d+000 / 1000000\nTime between 2 log_interval for actor 0 ")
        actor.wait_for(r"╭─ actor 0 of run .*╮\n│ [━╸╺]+ +\d\.\d %  ")
        actor.wait_for(r"speed +[\d.]+ steps/s .*├ \w+ .* \d+ %")
        piped.wait_for("Time between 2 log_interval for actor 1")
        learner.type("\x03")
        assert (learner.finish(), actor.finish(), piped.finish()) == (0, 0, 0)
        for terminal in (learner, actor):
            assert terminal.display.cursor_is_visible
            assert not set("╭│╰━╸╺") & set(terminal.output), "nothing is left of the picture"
    assert re.search(
        r"\nStopping: saving what there is\nResult: (?s:.*)\n\[.*\] Stopped at T = \d+, weights \w+$", learner.output
    )
    assert not set("\x1b╭│╰━╸╺") & set(piped.output)

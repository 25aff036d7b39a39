"""start_learning_atari.sh with a terminal, or a window of tmux, for each process."""

import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.deadline import wait_until
from tests.start_script import Workplace


@pytest.mark.slow
def test_a_terminal_for_each_process(workplace: Workplace) -> None:
    # Like the real one it returns at once and gives the window another environment.
    emulator = workplace.folder.parent / "gnome-terminal"
    emulator.write_text('#!/bin/sh\necho "$2" >>"$0.titles"\nshift 3\nenv -i PATH="$PATH" "$@" &\n')
    emulator.chmod(0o755)
    workplace.environment |= {"DISPLAY": ":99", "PATH": f"{emulator.parent}:{workplace.environment['PATH']}"}
    workplace.environment["SAVE_SECONDS"] = "0.5"
    workplace.start()
    workplace.argv("actor0")
    workplace.wait_for_line("start_learning_atari: learner, actor 0: windows of gnome-terminal")
    assert (emulator.parent / "gnome-terminal.titles").read_text().splitlines() == ["learner", "actor 0"]
    assert "[learner]" not in workplace.output
    started = time.monotonic()
    workplace.press_ctrl_c()
    assert workplace.exit_code() == 0
    assert time.monotonic() - started > 0.5  # the process had the script's environment, not the window's
    assert workplace.has_saved("learner") and workplace.has_saved("actor0")
    workplace.assert_nothing_left()


def tmux(workplace: Workplace, *command: str) -> str:
    """Run a command of a tmux server of the test's own."""
    return subprocess.run(
        ["tmux", "-S", workplace.folder.parent / "tmux", "-f", "/dev/null", *command],
        env=workplace.environment,
        check=False,
        capture_output=True,
        text=True,
    ).stdout


needs_tmux = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


def recorded(workplace: Workplace, *options: object) -> str:
    """The script's command, whose lines the workplace gets as well."""
    workplace.output_file.touch()
    return f"{shlex.join(workplace.command(*options))} 2>&1 | tee {workplace.output_file}"


@contextmanager
def session(workplace: Workplace, command: str) -> Iterator[None]:
    """A session of tmux, in whose first window somebody starts the script; in the end all windows close."""
    tmux(workplace, "new-session", "-d", "-x", "200", "-y", "50", command)
    try:
        yield
        wait_until(lambda: tmux(workplace, "list-windows") == "", "all windows to close")
        assert workplace.has_saved("learner")
        workplace.assert_nothing_left()
    finally:
        tmux(workplace, "kill-server")


@needs_tmux
def test_a_window_of_tmux_for_each_process(workplace: Workplace) -> None:
    with session(workplace, recorded(workplace)):
        workplace.argv("actor0")
        workplace.wait_for_line("start_learning_atari: learner, actor 0: windows of this tmux session .*w lists them.*")
        assert tmux(workplace, "list-windows", "-F", "#W").splitlines()[1:] == ["learner", "actor 0"]
        wait_until(lambda: "learner is here" in tmux(workplace, "capture-pane", "-p", "-t", ":1"), "the learner's line")
        workplace.tell("actor0", 5)  # its window stays open, so that the error can be read
        workplace.wait_for_line(".*the run cannot go on without actor 0; .*")
        wait_until(lambda: "Press Enter" in tmux(workplace, "capture-pane", "-p", "-t", ":2"), "the question")
        tmux(workplace, "send-keys", "-t", ":2", "Enter")


@needs_tmux
def test_ctrl_c_in_the_window_of_an_actor_stops_that_one(workplace: Workplace) -> None:
    workplace.environment["SAVE_SECONDS"] = "0.5"
    with session(workplace, recorded(workplace, "--nb-actor", 2)):
        workplace.argv("actor0")  # it can hear of a stop
        workplace.argv("actor1")
        tmux(workplace, "send-keys", "-t", ":2", "C-c")
        wait_until(lambda: "1 of 2 still run" in workplace.output, "the end of the actor")
        assert workplace.has_saved("actor0")
        others = ["learner", "actor 1"]
        wait_until(
            lambda: tmux(workplace, "list-windows", "-F", "#W").splitlines()[1:] == others, "the window to close"
        )
        tmux(workplace, "kill-window", "-t", ":0")  # a terminal that is closed
    assert workplace.has_saved("actor1")

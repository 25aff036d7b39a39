"""Which windows are opened by which commands, and that they show what a process writes."""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from rainbow_iqn_apex.common.errors import RunError, Stopped, UserError
from rainbow_iqn_apex.programs.process import StopRequest
from rainbow_iqn_apex.programs.start import windows
from rainbow_iqn_apex.programs.start.viewer import QUESTION
from rainbow_iqn_apex.programs.start.windows import TerminalWindows, TmuxWindows, choose, open_window
from tests.deadline import wait_until
from tests.processes import Process, Processes

SCREEN, TMUX = {"DISPLAY": ":0"}, {"TMUX": "/tmp/tmux-0/default,1,0"}


def kind(asked: str, environment: dict[str, str], *installed: str) -> str:
    """The windows that are chosen on a machine with these programs, in words."""
    chosen = choose(asked, 7000, environment, lambda name: name if name in installed else None)
    if isinstance(chosen, TerminalWindows):
        return chosen.emulator
    return f"tmux {chosen.session}".strip() if isinstance(chosen, TmuxWindows) else "none"


@pytest.mark.parametrize(
    ("asked", "environment", "installed", "chosen"),
    [
        ("auto", {}, "xterm tmux", "none"),
        ("auto", SCREEN, "tmux", "none"),
        ("auto", SCREEN, "xterm tmux", "xterm"),
        ("auto", {"WAYLAND_DISPLAY": "wayland-0"}, "xterm konsole", "konsole"),
        ("auto", TMUX, "xterm tmux", "tmux"),
        ("auto", TMUX | SCREEN, "tmux", "tmux"),
        ("auto", TMUX | SCREEN, "xterm tmux", "xterm"),
        ("terminal", TMUX | SCREEN, "x-terminal-emulator tmux", "x-terminal-emulator"),
        ("tmux", SCREEN, "xterm tmux", "tmux rainbow-7000"),
        ("tmux", TMUX | SCREEN, "xterm tmux", "tmux"),
        ("none", TMUX | SCREEN, "xterm tmux", "none"),
    ],
)
def test_the_windows_that_are_possible_are_chosen(
    asked: str, environment: dict[str, str], installed: str, chosen: str
) -> None:
    assert kind(asked, environment, *installed.split()) == chosen


@pytest.mark.parametrize(
    ("asked", "environment", "installed", "named"),
    [
        ("terminal", {"DISPLAY": ""}, "xterm", "--windows terminal: needs a screen"),
        ("terminal", SCREEN, "tmux", "--windows terminal: knows no terminal emulator here; install xterm"),
        ("tmux", SCREEN, "xterm", "--windows tmux: needs tmux"),
    ],
)
def test_windows_that_are_not_possible_are_refused(
    asked: str, environment: dict[str, str], installed: str, named: str
) -> None:
    with pytest.raises(UserError, match=named):
        kind(asked, environment, *installed.split())


def test_a_window_of_tmux_goes_to_this_session_or_to_one_of_its_own() -> None:
    inside, outside = TmuxWindows(7000, inside=True), TmuxWindows(7000, inside=False)
    assert outside.place.endswith("session rainbow-7000 (look at them with: tmux attach -t rainbow-7000)")
    end = ["-n", "actor 0", "view"]
    assert inside.command("actor 0", ["view"], first=False) == ["tmux", "new-window", "-d", *end]
    assert outside.command("actor 0", ["view"], first=True) == ["tmux", "new-session", "-d", "-s", "rainbow-7000", *end]
    assert outside.command("actor 0", ["view"], first=False) == [
        *["tmux", "new-window", "-d", "-t", "=rainbow-7000:"],
        *end,
    ]


class Viewers:
    """Windows without a window: the viewer's output goes to a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.viewer: Process | None = None

    def open(self, _name: str, command: Sequence[str]) -> None:
        with self.file.open("wb") as output:
            environment: dict[str, str] = {}  # that of a terminal server is another one, too
            popen = subprocess.Popen(command, cwd="/", stdin=-1, stdout=output, stderr=output, env=environment)
        self.viewer, self.stdin = Process(popen, "the viewer", self.file), popen.stdin


def open_none(_name: str, _command: Sequence[str]) -> None: ...


@contextmanager
def opened(tmp_path: Path, process_id: int) -> Iterator[tuple[int, Process]]:
    """The descriptor and the viewer of a window."""
    viewers = Viewers(tmp_path / "shown")
    descriptor = open_window(viewers.open, "actor 0", process_id, StopRequest())
    assert viewers.viewer is not None
    try:
        yield descriptor, viewers.viewer
    finally:
        viewers.viewer.kill()
        assert viewers.stdin
        viewers.stdin.close()


def test_a_window_shows_all_lines_and_then_closes(tmp_path: Path) -> None:
    with opened(tmp_path, 0) as (descriptor, viewer):
        os.write(descriptor, b"first\n")
        wait_until(lambda: (tmp_path / "shown").read_bytes() == b"first\n", "the line at once")
        os.write(descriptor, b"last\n" + QUESTION)
        os.close(descriptor)
        assert viewer.finish(30) == 0, "it asks nobody where there is no terminal"
    assert (tmp_path / "shown").read_bytes() == b"first\nlast\n" + QUESTION


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_window_that_is_closed_lets_the_process_save(
    processes: Processes, tmp_path: Path, number: signal.Signals
) -> None:
    process = processes.start("1000", program="sleep")
    with opened(tmp_path, process.pid) as (descriptor, viewer):
        os.write(descriptor, b"first\n")
        wait_until((tmp_path / "shown").read_bytes, "the line")
        viewer.send(number)
        assert process.finish(30) == -signal.SIGTERM
        os.write(descriptor, b"saved\n")
        os.close(descriptor)
        assert viewer.finish(30) == 0
    assert (tmp_path / "shown").read_bytes() == b"first\nsaved\n"


def test_a_window_that_does_not_open_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "_OPENS_WITHIN_S", 0.3)
    with pytest.raises(RunError, match="the window for actor 0 did not open"):
        open_window(open_none, "actor 0", 0, StopRequest())


def test_a_stop_is_heeded_while_a_window_opens() -> None:
    stop = StopRequest()
    stop._note()
    with pytest.raises(Stopped):
        open_window(open_none, "actor 0", 0, stop)


def test_a_tmux_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmux").write_text("#!/bin/sh\necho 'no space for new pane' >&2\nexit 1\n")
    (tmp_path / "tmux").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(RunError, match="tmux opens no window for learner: no space for new pane"):
        TmuxWindows(7000, inside=True).open("learner", ["true"])

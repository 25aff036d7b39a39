"""Open a window for each process, of a terminal emulator or of tmux.

The process is a child of the start script, and a viewer shows its lines in the window. It is no child of the window,
which may belong to a server that was started long ago, with another environment.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.programs.process import StopRequest
from rainbow_iqn_apex.programs.start import viewer

_OPENS_WITHIN_S = 30.0
_CHOOSE = "its prefix key, mostly Ctrl-b, then w lists them"
_EMULATORS = {  # what comes before the command of a window, in order of preference
    "gnome-terminal": ("--title", "{name}", "--"),
    "konsole": ("-p", "tabtitle={name}", "-e"),
    "xfce4-terminal": ("--disable-factory", "--title", "{name}", "-x"),
    "mate-terminal": ("--disable-factory", "--title", "{name}", "-x"),
    "xterm": ("-T", "{name}", "-e"),
    "x-terminal-emulator": ("-e",),
}


class TerminalWindows:
    """Windows of a terminal emulator."""

    def __init__(self, emulator: str) -> None:
        self.emulator = emulator
        self.place = f"windows of {emulator}"
        self._opened: list[subprocess.Popen[bytes]] = []

    def open(self, name: str, command: Sequence[str]) -> None:
        """Open a window of that name, in which the command runs."""
        none = subprocess.DEVNULL
        opening = [self.emulator, *(word.format(name=name) for word in _EMULATORS[self.emulator]), *command]
        self._opened.append(subprocess.Popen(opening, stdin=none, stdout=none, stderr=none, start_new_session=True))


class TmuxWindows:
    """Windows of tmux: in the present session, or from outside of tmux in one that is named after the Redis port."""

    def __init__(self, port: int, *, inside: bool) -> None:
        self.session = "" if inside else f"rainbow-{port}"
        look = f"look at them with: tmux attach -t {self.session}" if self.session else _CHOOSE
        self.place = f"windows of {f'tmux session {self.session}' if self.session else 'this tmux session'} ({look})"

    def command(self, name: str, command: Sequence[str], *, first: bool) -> list[str]:
        """Return the command that opens a window; the first one begins the session."""
        new = ["new-window", "-d", *(["-t", f"={self.session}:"] if self.session else [])]
        if first:
            new = ["new-session", "-d", "-s", self.session]
        return ["tmux", *new, "-n", name, *command]

    def open(self, name: str, command: Sequence[str]) -> None:
        """Open a window of that name, in which the command runs."""
        first = bool(self.session) and _tmux(["tmux", "has-session", "-t", f"={self.session}"]).returncode != 0
        done = _tmux(self.command(name, command, first=first))
        if done.returncode != 0:
            raise RunError(f"tmux opens no window for {name}: {done.stderr.strip()}")


Windows: TypeAlias = TerminalWindows | TmuxWindows


def _tmux(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def choose(
    asked: str, port: int, environment: Mapping[str, str], which: Callable[[str], str | None] = shutil.which
) -> Windows | None:
    """Return the kind of windows that --windows asks for, None for all lines in this terminal."""
    screen = environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")
    emulator = next((name for name in _EMULATORS if which(name)), None)
    if asked == "terminal" and not screen:
        raise UserError("--windows terminal: needs a screen (DISPLAY or WAYLAND_DISPLAY)")
    if asked == "terminal" and not emulator:
        raise UserError("--windows terminal: knows no terminal emulator here; install xterm")
    if asked == "tmux" and not which("tmux"):
        raise UserError("--windows tmux: needs tmux")
    inside = bool(environment.get("TMUX"))
    if asked in ("terminal", "auto") and screen and emulator:
        return TerminalWindows(emulator)
    return TmuxWindows(port, inside=inside) if asked == "tmux" or (asked == "auto" and inside) else None


def open_window(opened: Callable[[str, Sequence[str]], None], name: str, process_id: int, stop: StopRequest) -> int:
    """Open a window for a process, by `Windows.open`; return a descriptor: the window shows what is written there."""
    with tempfile.TemporaryDirectory(prefix="rainbow.") as folder:
        pipe = Path(folder) / "lines"
        os.mkfifo(pipe)
        opened(name, [sys.executable, "-I", viewer.__file__, str(pipe), str(process_id)])
        deadline = time.monotonic() + _OPENS_WITHIN_S
        while time.monotonic() < deadline:
            with suppress(OSError):  # until the viewer reads
                descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
                os.set_blocking(descriptor, True)
                return descriptor
            stop.pause()
    raise RunError(f"the window for {name} did not open")

"""A terminal for the tests: a process on a pseudo-terminal, and what a person sees there.

with Terminal(["launch_learner.py", ...]) as terminal:
    terminal.wait_for("%")
    terminal.type("\\x03")          # Ctrl-C, as from a keyboard
    assert terminal.finish() == 0
    assert "Stopped" in terminal.output
"""

import codecs
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from contextlib import suppress
from pathlib import Path

from tests.deadline import wait_until
from tests.processes import ROOT, Process, clean_environment

WIDTH, HEIGHT = 80, 50
_TOKEN = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]|\x1b")


class Display:
    """Obeys the few sequences that our programs write, as a terminal would; what has scrolled away stays in `lines`."""

    def __init__(self) -> None:
        self.lines: list[list[str]] = [[]]
        self.row = self.column = 0
        self.cursor_is_visible = True
        self._rest = ""

    def feed(self, text: str) -> None:
        text = self._rest + text
        whole = len(text) - len(match[0]) if (match := re.search(r"\x1b(\[[0-9;?]*)?$", text)) else len(text)
        self._rest = text[whole:]
        for token in _TOKEN.findall(text[:whole]):
            self._obey(token)

    def _obey(self, token: str) -> None:
        if token == "\r":
            self.column = 0
        elif token == "\n":
            self.row += 1
            self.lines += [[] for _ in range(self.row + 1 - len(self.lines))]
        elif token in ("\x1b[?25h", "\x1b[?25l"):
            self.cursor_is_visible = token.endswith("h")
        elif token == "\x1b[2K":
            self.lines[self.row] = []
        elif re.fullmatch(r"\x1b\[[0-9]*A", token):
            self.row -= int(token[2:-1] or 1)
            assert self.row >= max(0, len(self.lines) - HEIGHT), "a terminal cannot go up so far"
        elif not re.fullmatch(r"\x1b\[[0-9;]*m", token):
            assert not token.startswith("\x1b"), f"unknown sequence {token!r}"
            if self.column == WIDTH:
                self._obey("\r")
                self._obey("\n")
            line = self.lines[self.row]
            line += " " * (self.column + 1 - len(line))
            line[self.column] = token
            self.column += 1

    @property
    def text(self) -> str:
        return "\n".join("".join(line).rstrip() for line in self.lines).rstrip("\n")


class Terminal(Process):
    """Runs a command on a terminal of its own; use as a context manager."""

    def __init__(
        self, words: list[str], *, program: str = sys.executable, environment: dict[str, str] | None = None,
        cwd: Path = ROOT,
    ) -> None:  # fmt: skip
        self.display = Display()
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
        given = {k: v for k, v in (environment or clean_environment()).items() if k not in ("COLUMNS", "LINES")}
        popen = subprocess.Popen(
            [program, *words],
            cwd=cwd,
            env=given | {"TERM": "xterm-256color"},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        super().__init__(popen, " ".join([program, *words])[:300], Path(os.devnull))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        decode = codecs.getincrementaldecoder("utf-8")().decode
        with suppress(OSError):  # at the end of the last process that holds the terminal
            while data := os.read(self._master, 65536):
                self.display.feed(decode(data))

    @property
    def output(self) -> str:
        """What stands on the terminal now, and above it."""
        return self.display.text

    def wait_for(self, text: str, times: int = 1, seconds: float = 90) -> None:
        """Wait until a pattern stands there so many times."""
        self.wait_until(lambda: len(re.findall(text, self.output)) >= times, text, seconds)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def finish(self, seconds: float = 90) -> int:
        """Wait for the end, also of what was written; return the exit code."""
        code = super().finish(seconds)
        wait_until(lambda: not self._reader.is_alive(), "all that was written to be read", seconds)
        return code

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill_group()
        os.close(self._master)

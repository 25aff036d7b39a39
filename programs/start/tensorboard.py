"""Run TensorBoard beside a run, and tell its address."""

import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from programs.start.output import complain, say

_ENDS_S = 5.0


class TensorBoard:
    """A process, with the helpers that it starts; it takes port 6006, or one of those that follow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stopping = False
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it; a thread prints the address, or the last line of a TensorBoard that fails."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tensorboard.main", "--logdir", str(self._folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # the terminal's Ctrl-C does not reach it: it shows the run to its end
        )
        threading.Thread(target=self._watch, args=(self._process,), name="TensorBoard", daemon=True).start()

    def _watch(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        line = ""
        for line in process.stdout:
            if found := re.search(r"TensorBoard \S+ at (http\S+)", line):
                say(f"TensorBoard shows this run at {found[1]}")
        if not self._stopping:
            complain(f"TensorBoard has ended, and the run goes on: {line.strip()}")

    def stop(self) -> None:
        """End it and its helpers."""
        if self._process is None:
            return
        self._stopping = True
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_ENDS_S)
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

"""Run servers of web pages beside a run, the dashboard and TensorBoard, and tell their addresses."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

from args import Args
from programs.dashboard.extra import missing
from programs.sink_options import tensorboard_folder
from programs.start.output import complain, say

_ENDS_S = 5.0


class PageServer:
    """A process, with the helpers that it starts; `address` finds in its lines what to open in a browser."""

    def __init__(self, name: str, command: Sequence[str], address: str) -> None:
        self._name = name
        self._command = command
        self._address = address
        self._stopping = False
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it; a thread prints the address, or the last line of a server that fails."""
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # the terminal's Ctrl-C does not reach it: it shows the run to its end
        )
        threading.Thread(target=self._watch, args=(self._process,), name=self._name, daemon=True).start()

    def _watch(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        line = ""
        for line in process.stdout:
            if found := re.search(self._address, line):
                say(f"{self._name} shows this run at {found[1]}")
        if not self._stopping:
            complain(f"{self._name} has ended, and the run goes on: {line.strip()}")

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


def page_servers(args: Args) -> list[PageServer]:
    """Return the dashboard, or name the extra that it lacks; and TensorBoard, if it is asked for."""
    servers = []
    if lacking := missing():
        say(f"no dashboard: {lacking}")
    else:
        given = [name for name in ("host_redis", "port_redis", "redis_url") if name in args.given]
        options = [f"--{name.replace('_', '-')}={getattr(args, name)}" for name in given]
        run = [f"--path-to-results={args.path_to_results}", f"--run-name={args.name}"]
        servers.append(
            PageServer("the dashboard", [sys.executable, "dashboard.py", *run, *options], r"Dashboard: (\S+)")
        )
    if args.tensorboard:
        # It takes port 6006, or one of those that follow.
        folder = str(tensorboard_folder(args.path_to_results, args.task))
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", folder]
        servers.append(PageServer("TensorBoard", command, r"TensorBoard \S+ at (http\S+)"))
    return servers

"""Run the start script for one run of a sweep, which ends with the sweep whatever ends that."""

import os
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO

import rainbow_iqn_apex
from rainbow_iqn_apex.common.files import lock_file, open_own, open_regular
from rainbow_iqn_apex.programs.process import ENDS_WITH, fault_in, newest_with
from rainbow_iqn_apex.programs.sweep.runs import Run, State

LOG = "sweep.log"  # of all starts of a run, in its folder
_LOCK = ".sweep.lock"
_TAIL = 16_384  # bytes
_PACKAGE_IN = str(Path(rainbow_iqn_apex.__file__).resolve().parents[1])


class Process:
    """The start script of a run; SIGTERM to `popen` lets it save and stop everything, and kill what does not stop."""

    def __init__(self, run: Run, state: State, lock: IO[bytes], gpu: int | None) -> None:
        """Start it; `lock` is what `take` has returned. Raises OSError."""
        self.run = run
        own = [f"--path-to-results={run.folder}", f"--port-redis={state.port}", "--windows=none"]
        own += [] if gpu is None else [f"--gpus={gpu}"]
        command = [sys.executable, "-m", "rainbow_iqn_apex.programs.start", *run.words, *own]
        with lock, open_own(run.folder / LOG, "ab") as log:
            self._begins = log.tell()  # what stands before is of other starts
            self.popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment() | {ENDS_WITH: str(os.getpid())},
                start_new_session=True,  # Ctrl-C reaches the sweep alone, which stops all
                pass_fds=[lock.fileno()],  # the lock lasts as long as the start script
            )

    def fault(self) -> str:
        """Return the line that tells best why it has failed."""
        return fault_in(self._last_lines()[-30:])

    def has_finished(self) -> bool:
        """Return whether the learner has printed that it has come to the run's T-max."""
        with suppress(OSError), self._open_log() as file:
            file.seek(self._begins)
            return any(re.match(rb"\[learner\] (\[\S+\] )?Finished at T = ", line) for line in file)
        return False

    def progress(self) -> tuple[int, str]:
        """Return the agent steps that the learner has printed last, and its newest words about the score."""
        lines = self._last_lines()
        steps = re.search(r"T = ([0-9]{1,18}) / ", newest_with(r"^\[learner\] \[.*\] T = ", lines))
        score = newest_with(r"^\[learner\] (Score|Mean) ", lines).removeprefix("[learner] ")
        return int(steps[1]) if steps else 0, score or newest_with(".", lines)

    def _open_log(self) -> IO[bytes]:
        return open_regular(self.run.folder / LOG, self.run.folder)

    def _last_lines(self) -> list[str]:
        with suppress(OSError), self._open_log() as file:
            file.seek(max(self._begins, file.seek(0, os.SEEK_END) - _TAIL))
            return file.read().decode(errors="replace").splitlines()
        return []


def environment() -> dict[str, str]:
    """Return this process's variables, with which Python finds this package from any folder, behind what is named."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), _PACKAGE_IN]))}


def take(run: Run) -> IO[bytes] | None:
    """Return a lock of the run's folder, None if another start script is at work there; raises OSError."""
    run.folder.mkdir(parents=True, exist_ok=True)
    try:
        return lock_file(run.folder / _LOCK)
    except BlockingIOError:
        return None

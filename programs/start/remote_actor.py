"""Stand for an actor on another host: start it there by ssh, hand on its lines, stop it as an actor here is stopped.

python -m rainbow_iqn_apex.programs.start.remote_actor HOST FOLDER REDIS DB [OPTION ...], with REDIS as host:port and
the options of launch_actor.py. When the connection breaks, another is made for as long as it takes. The actor ends with
this process, and this process with the start script.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.broker.access import PASSWORD, USERNAME
from rainbow_iqn_apex.programs.process import HAS_WORKED, has_worked, reader
from rainbow_iqn_apex.programs.start.hosts import Host
from rainbow_iqn_apex.programs.start.remote_messages import BEAT_S
from rainbow_iqn_apex.programs.start.ssh import Connection, LostError

_LOOK_S = 0.2
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 10.0
_TOLD_EVERY_S = 10.0
_STOPS_S = 60.0  # for an actor whose start script was killed; the start script itself has RAINBOW_STOP_SECONDS


class RemoteActor:
    """An actor on a host, over as many connections as it takes."""

    def __init__(self, host: Host, redis: str, db: int, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self._host, self._redis, self._db, self._words = host, redis, db, words
        self._told = {name: environment[name] for name in (USERNAME, PASSWORD, HAS_WORKED) if environment.get(name)}
        self._stop = False
        self._is_there = False  # the other side, over the newest connection
        self._was_there = has_worked()  # over any of them, or of those of an earlier process
        self._reader = reader()

    def run(self) -> int:
        """Return the actor's exit code; 1 if it was to stop without a connection.

        Raises UserError for a host that cannot run it. One that could is waited for: its folder may be mounted late.
        """
        pause, lost_at, told_at = _FIRST_PAUSE_S, 0.0, 0.0
        while not self._ends():
            self._is_there = False
            try:
                return self._run_once()
            except (LostError, UserError) as error:
                if isinstance(error, UserError) and not self._was_there:
                    raise
                now = time.monotonic()
                if self._is_there or not lost_at:
                    pause, lost_at, told_at = _FIRST_PAUSE_S, now, now - _TOLD_EVERY_S
                if now - told_at >= _TOLD_EVERY_S:
                    told_at = now
                    _print(f"Waiting for the ssh connection to {self._host.name} ({now - lost_at:.0f} sec): {error}")
            until = time.monotonic() + pause * random.uniform(0.5, 1.0)  # an sshd drops many that come at once
            while time.monotonic() < until and not self._ends():
                time.sleep(_LOOK_S)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        return 1

    def stop(self, *_: object) -> None:
        """Ask it to save and stop, as a handler of signals, which may take no lock: its own thread may hold it."""
        self._stop = True

    def _run_once(self) -> int:
        with Connection(self._host, self._redis) as connection:
            connection.take = _hand_on
            connection.greet()
            self._is_there = self._was_there = True
            connection.start(self._words, self._db, self._told)
            beat = stopping = 0.0
            while (code := connection.exit_code()) is None:
                now = time.monotonic()
                if not stopping and self._ends():
                    stopping = now
                    connection.ask_to_stop()
                if stopping and now - stopping > _STOPS_S and self._reader.poll(0):
                    return 1
                if now - beat >= BEAT_S:
                    beat = now
                    connection.beat()
                time.sleep(_LOOK_S)
            return code

    def _ends(self) -> bool:
        """Return whether this process was asked to stop, or its start script was killed."""
        return self._stop or bool(self._reader.poll(0))


def _hand_on(line: bytes) -> None:
    with suppress(OSError):  # nobody reads it any more, and the actor may still save
        os.write(1, line)


def _print(line: str) -> None:
    _hand_on(f"{line}\n".encode())


def main() -> int:
    """Run an actor there; return its exit code, or 2 for a host that cannot run it."""
    name, folder, redis, db, *words = sys.argv[1:]
    actor = RemoteActor(Host(name, 1, folder, ()), redis, int(db), words, os.environ)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, actor.stop)
    try:
        return actor.run()
    except UserError as error:
        _print(str(error))
        return 2


if __name__ == "__main__":
    sys.exit(main())

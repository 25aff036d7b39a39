"""Run an actor on a host for a start script elsewhere, and let nothing of it outlive the connection.

`ssh.py` starts this module there. Standard input brings first what to run, then a line every few seconds, and one that
asks the actor to stop. If it ends, or brings nothing for a while, the other side is gone, and with it the tunnel
through which the actor could save: then the actor is killed, which loses nothing that Redis has acknowledged.
"""

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from typing import IO

from rainbow_iqn_apex.common import schema
from rainbow_iqn_apex.common.checkout import present
from rainbow_iqn_apex.options import command_line
from rainbow_iqn_apex.programs.start.remote_messages import HELLO, MOST_BYTES, SILENT_S, STOP, Order

_LOOK_S = 0.2
_LINES_END_S = 5.0
_LOST = 255  # as ssh ends when it has lost a connection: an actor that ends so has failed


def main() -> int:
    """Tell what runs here, run what is ordered, and return its exit code."""
    os.write(1, HELLO + json.dumps(asdict(present())).encode() + b"\n")
    line = _read_line()
    if not line:
        return 0  # it was only asked what runs here
    order = schema.read_record(line, Order, MOST_BYTES)
    # The order names the Redis server, at the tunnel's end, and all that is needed of it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REDIS_")}
    actor = subprocess.Popen(
        [*command_line.run_by("launch_actor.py"), *order.words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,  # and not our own: an actor whose lines are read no more ends
        stderr=subprocess.STDOUT,
        env=environment | order.environment | {"PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: actor.terminate())
    assert actor.stdout is not None
    copying = threading.Thread(target=_copy, args=(actor.stdout,), name="lines", daemon=True)
    copying.start()
    _watch(actor)
    with suppress(ProcessLookupError):
        os.killpg(actor.pid, signal.SIGKILL)  # its helpers
    copying.join(_LINES_END_S)
    code = actor.returncode
    return 1 if code == _LOST else code if code >= 0 else 128 - code


def _read_line() -> bytes:
    """Return the next line of the standard input, read letter by letter; empty if it ends, or does not come."""
    line = b""
    while not line.endswith(b"\n") and len(line) <= MOST_BYTES:
        if not select.select([0], [], [], SILENT_S)[0] or not (letter := os.read(0, 1)):
            return b""
        line += letter
    return line


def _copy(lines: IO[bytes]) -> None:
    """Hand on the actor's lines; close their pipe when nobody takes them, which ends the actor."""
    with lines, suppress(OSError):
        for line in lines:
            os.write(1, line)


def _watch(actor: subprocess.Popen[bytes]) -> None:
    """Wait for the actor's end; stop it when that is asked for, and kill it when the other side is gone."""
    heard = time.monotonic()
    while actor.poll() is None:
        if select.select([0], [], [], _LOOK_S)[0]:
            data = os.read(0, 4096)
            if STOP in data:
                actor.terminate()
            heard = time.monotonic() if data else heard - SILENT_S
        if time.monotonic() - heard >= SILENT_S:
            actor.kill()
            actor.wait()


if __name__ == "__main__":
    sys.exit(main())

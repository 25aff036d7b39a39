"""Run an actor on a host for a start script elsewhere, and let nothing of it outlive the connection.

`hosts.py` starts this module there. Standard input brings first what to run, then a line every few seconds, and one
that asks the actor to stop. If it ends, or brings nothing for a while, the other side is gone, and with it the tunnel
through which the actor could save: then the actor is killed, which loses nothing that Redis has acknowledged.
"""

import json
import os
import select
import signal
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated

from msgspec import Meta

from rainbow_iqn_apex.common import schema
from rainbow_iqn_apex.common.checkout import present
from rainbow_iqn_apex.common.signals import STOP_SIGNALS
from rainbow_iqn_apex.options import command_line
from rainbow_iqn_apex.programs.supervision import Command, Lines, write_all

HELLO = b"rainbow-iqn-apex remote "  # begins the first line from here, after what a login may print
FAULT = b"rainbow-iqn-apex fault "  # in its place: what is missing here
STOP = b"stop\n"
BEAT = b"\n"
BEAT_S = 5.0
LOST = 255  # as ssh ends when it has lost a connection: an actor that ends so has failed
_SILENT_S = 20.0  # without a beat, after which the other side counts as gone
_MOST_BYTES = 1_000_000  # of an order
_LOOK_S = 0.2
_Text = Annotated[str, Meta(max_length=10_000)]


@dataclass(frozen=True)
class Order:
    """Orders this side to run an actor; secrets are in the environment alone."""

    words: Annotated[list[_Text], Meta(max_length=1000)]  # options of launch_actor.py
    environment: dict[_Text, _Text]


def main() -> int:
    """Report what runs here, run what is ordered, and return its exit code."""
    os.write(1, HELLO + json.dumps(asdict(present())).encode() + b"\n")
    line = _read_line()
    if not line:
        return 0  # it was only asked what runs here
    order = schema.read_record(line, Order, _MOST_BYTES)
    # The order names the Redis server, at the tunnel's end, and all that is needed of it.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("REDIS_")}
    actor = Command(
        "actor",
        [*command_line.run_by("launch_actor.py"), *order.words],
        Lines(partial(write_all, 1)),  # and not our own output: an actor whose lines are read no more ends
        environment=environment | order.environment,
    )
    actor.start()
    for number in STOP_SIGNALS:
        signal.signal(number, lambda *_: actor.ask_to_stop())
    _watch(actor)
    return 1 if actor.exit_code == LOST else actor.exit_code or 0


def _read_line() -> bytes:
    """Return the next line of the standard input, read letter by letter; empty if it ends, or does not come."""
    line = b""
    while not line.endswith(b"\n") and len(line) <= _MOST_BYTES:
        if not select.select([0], [], [], _SILENT_S)[0] or not (letter := os.read(0, 1)):
            return b""
        line += letter
    return line


def _watch(actor: Command) -> None:
    """Wait for the actor's end; stop it when that is asked for, and kill it when the other side is gone."""
    heard = time.monotonic()
    while actor.runs():
        if select.select([0], [], [], _LOOK_S)[0]:
            data = os.read(0, 4096)
            if STOP in data:
                actor.ask_to_stop()
            heard = time.monotonic() if data else heard - _SILENT_S
        if time.monotonic() - heard >= _SILENT_S:
            actor.kill()


if __name__ == "__main__":
    sys.exit(main())

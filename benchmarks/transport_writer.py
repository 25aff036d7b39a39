"""An actor without a game, for transport.py: appends chunks that were made before.

python -m benchmarks.transport_writer <folder of messages> <port> <actor> <chunks of a commit> <chunks a second>
"""

import itertools
import math
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.connection import connect
from rainbow_iqn_apex.memory.broker.run_client import RunOver
from rainbow_iqn_apex.memory.messages import Message, decode_message
from rainbow_iqn_apex.programs import processor

NAME, RUN = "benchmark", "run"
STATE_BYTES = 40_000  # what an actor's state takes
_UNREAD = 1024  # messages that the learner has not read yet, at most: it tells each second how many it has read


def write(folder: Path, port: int, actor: int, chunks: int, rate: float) -> None:
    """Append until the learner is gone."""
    made = [decode_message(path.read_bytes(), 10**7) for path in sorted(folder.iterdir())]
    with ActorClient(connect("127.0.0.1", port), NAME, RUN, actor, threading.Event()) as client:
        append(client, made, chunks, rate)


def append(client: ActorClient, made: Sequence[Message], chunks: int, rate: float = math.inf) -> None:
    """Append chunks that were made before, so many at once and a second, until the learner is gone."""
    state = np.random.default_rng(0).bytes(STATE_BYTES)
    start = time.monotonic()
    for at in itertools.count(step=chunks):
        client.commit([made[(at + i) % len(made)] for i in range(chunks)], state)
        time.sleep(max(0.0, start + at / rate - time.monotonic()))
        try:
            client.record()
            while client.unread() > _UNREAD:
                client.record()
                time.sleep(0.001)
        except RunOver:
            return


if __name__ == "__main__":
    processor.prepare()  # as actors do: pages of freed memory would be faulted in for each chunk again
    write(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))

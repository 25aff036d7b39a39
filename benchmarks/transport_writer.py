"""An actor without a game, for transport.py: appends chunks that were made before.

python -m benchmarks.transport_writer <folder of messages> <port> <actor> <chunks of a commit>
"""

import itertools
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.connection import connect
from rainbow_iqn_apex.memory.broker.run_client import RunOver
from rainbow_iqn_apex.memory.messages import decode_message
from rainbow_iqn_apex.programs.process import prepare_processor

NAME, RUN = "benchmark", "run"
_STATE_BYTES = 40_000  # what an actor's state takes
_UNREAD = 1024  # messages that the learner has not read yet, at most: it tells each second how many it has read


def write(folder: Path, port: int, actor: int, chunks: int) -> None:
    """Append chunks that were made before, so many at once, until the learner is gone."""
    made = [decode_message(path.read_bytes(), 10**7) for path in sorted(folder.iterdir())]
    server = connect("127.0.0.1", port)
    state = np.random.default_rng(0).bytes(_STATE_BYTES)
    with ActorClient(server, NAME, RUN, actor, threading.Event()) as client, suppress(RunOver):
        for at in itertools.count(step=chunks):
            client.commit([made[(at + i) % len(made)] for i in range(chunks)], state)
            client.record()
            while client.unread() > _UNREAD:
                client.record()
                time.sleep(0.001)


if __name__ == "__main__":
    prepare_processor()  # as actors do: pages of freed memory would be faulted in for each chunk again
    folder, *numbers = sys.argv[1:]
    write(Path(folder), *map(int, numbers))

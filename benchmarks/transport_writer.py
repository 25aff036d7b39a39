"""An actor without a game, for transport.py and masters.py: appends chunks that were made before.

python -m benchmarks.transport_writer <folder of messages> <URL> <shards> <actor> <chunks of a commit> <chunks a second>
"""

import itertools
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from rainbow_iqn_apex.memory.broker.access import find_server
from rainbow_iqn_apex.memory.broker.actor_client import ActorClient
from rainbow_iqn_apex.memory.broker.opening import open_servers
from rainbow_iqn_apex.memory.broker.run_client import RunOver
from rainbow_iqn_apex.memory.messages import decode_message
from rainbow_iqn_apex.programs import processor

NAME, RUN = "benchmark", "run"
STATE_BYTES = 40_000  # what an actor's state takes
_UNREAD = 1024  # messages that the learner has not read yet, at most: it tells each second how many it has read


def write(folder: Path, url: str, shards: int, actor: int, chunks: int, rate: float) -> None:
    """Append chunks that were made before, so many at once and a second, until the learner is gone."""
    made = [decode_message(path.read_bytes(), 10**7) for path in sorted(folder.iterdir())]
    servers = open_servers(find_server("", 0, url, {}))
    state = np.random.default_rng(0).bytes(STATE_BYTES)
    with ActorClient(servers, NAME, RUN, actor, threading.Event(), shards=shards) as client, suppress(RunOver):
        start = time.monotonic()
        for at in itertools.count(step=chunks):
            client.commit([made[(at + i) % len(made)] for i in range(chunks)], state)
            time.sleep(max(0.0, start + at / rate - time.monotonic()))
            client.record()
            while client.unread() > _UNREAD:
                client.record()
                time.sleep(0.001)


if __name__ == "__main__":
    processor.prepare()  # as actors do: pages of freed memory would be faulted in for each chunk again
    folder, url, shards, actor, chunks, rate = sys.argv[1:]
    write(Path(folder), url, int(shards), int(actor), int(chunks), float(rate))

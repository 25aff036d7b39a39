"""Ends this learner when another learner of its run is gone: nothing else wakes a process that waits for one.

Each learner renews its lease in Redis while it lives. A learner that was killed, or is suspended, does not.
"""

import os
import sys
import threading
import time

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.memory.broker.connection import BrokerError, Client
from rainbow_iqn_apex.memory.broker.lease import TTL_MS
from rainbow_iqn_apex.memory.broker.transport import Keys, Scripts
from rainbow_iqn_apex.programs.learner.team import Team, gone

_LOOK_S = 0.5
_RENEWED_MS = 6000.0  # a living learner has renewed its lease since then: it does so four times in a lease's length
_MISSED_S = 2.5  # for so long; a Redis server that was started again gets all leases within this time


class TeamWatch:
    """Looks at the others' leases in a thread, from now until the end of its block.

    `tokens` are those of all learners' leases. When one is gone, the thread prints a line and ends the process with
    exit code 1. Files are never half written, so that may happen at any time.
    """

    def __init__(self, client: Client, name: str, team: Team, tokens: list[bytes]) -> None:
        self._scripts = Scripts(client)
        self._rank = team.rank
        self._others = {Keys(name, "").lease_of(rank): token for rank, token in enumerate(tokens) if rank != team.rank}
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="others", daemon=True)
        if self._others:
            self._thread.start()

    def __enter__(self) -> "TeamWatch":
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        if self._others:
            self._thread.join()

    def _watch(self) -> None:
        missed_since: dict[str, float] = {}
        while not self._left.wait(_LOOK_S):
            try:
                missed = [key for key, token in self._others.items() if not self._is_held(key, token)]
            except (BrokerError, RunError):
                missed = []  # then nobody can renew anything
            now = time.monotonic()
            missed_since = {key: missed_since.get(key, now) for key in missed}
            if any(now - since >= _MISSED_S for since in missed_since.values()) and not self._left.is_set():
                print(f"launch_learner.py: {gone(self._rank)}", file=sys.stderr, flush=True)
                os._exit(1)

    def _is_held(self, key: str, token: bytes) -> bool:
        held = self._scripts.read_lease(key)
        return held.value == token and held.left_ms > TTL_MS - _RENEWED_MS

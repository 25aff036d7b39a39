"""Leases: at most one learner of a run and at most one actor of an id, held with redlock and renewed in a thread."""

import threading
import time
from contextlib import suppress
from typing import Any

from redlock import Redlock

from memory.connection import BrokerError, Client
from memory.errors import RunError, UserError
from memory.transport import Scripts
from memory.waiting import Patience

TTL_MS = 10_000


class _Redlock(Redlock):  # type: ignore[misc]  # has no types
    """Leaves a lock to its end when the server does not take it back: redlock-py would log a traceback of that."""

    def unlock_instance(self, server: Client, resource: str, val: bytes) -> None:
        """Give the lock back."""
        with suppress(BrokerError, RunError, UserError):
            server.eval(self.unlock_script, 1, resource, val)


class Lease:
    """A lock that its holder must keep renewing; use as a context manager, and call `check` before what it protects.

    A process that was killed leaves its lease behind for `TTL_MS`; its successor waits for that. A holder that is alive
    renews it meanwhile, and then the successor is refused.
    """

    def __init__(self, client: Client, key: str, what: str, advice: str) -> None:
        self._client = client
        self._key = key
        self._what = what
        self._advice = advice
        self._redlock = _Redlock([client], retry_count=1, retry_delay=0.01)
        self._scripts = Scripts(client)
        self._left = threading.Event()
        self._error: str | None = None
        self._thread = threading.Thread(target=self._keep, name=f"lease of {what}", daemon=True)

    def __enter__(self) -> "Lease":
        self._lock = self._acquire()
        self.token: bytes = self._lock.key
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join()
        if not self._error:  # else it is not ours any more, or nobody answers
            self._redlock.unlock(self._lock)

    def check(self) -> None:
        """Raise RunError if the lease is lost."""
        if self._error:
            raise RunError(self._error)

    def _acquire(self) -> Any:  # redlock's Lock has no types
        patience = Patience(f"the lease of {self._what}, held by a process that may be gone", interval=2)
        remaining = TTL_MS
        while not (lock := self._redlock.lock(self._key, TTL_MS)):
            self._client.get(self._key)  # raises RunError for a value that is no lease at all
            left = self._client.pttl(self._key)
            if left > remaining or left == -1:  # renewed, so its holder lives; or set for ever, by nobody of ours
                raise UserError(f"{self._what} is already running: {self._advice}")
            remaining = max(left, 0)
            patience.check()
            time.sleep(min(0.25, remaining / 1000 + 0.01))
        return lock

    def _keep(self) -> None:
        while not self._left.wait(TTL_MS / 4000):
            try:
                if not self._scripts.renew(self._key, self.token, TTL_MS):
                    self._error = f"the lease of {self._what} was lost: another process has taken its place"
                    return
            except Exception as error:  # noqa: BLE001 - raised again by `check` in the main thread
                self._error = f"the lease of {self._what} could not be renewed: {error}"
                return

"""Leases: at most one learner of a run and at most one actor of an id, held with redlock and renewed in a thread."""

import math
import os
import re
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from redlock import Redlock

from rainbow_iqn_apex.common.errors import LeaseLostError, RunError, Stopped, UserError
from rainbow_iqn_apex.common.schema import MOST_SECONDS
from rainbow_iqn_apex.common.waiting import WaitReporter
from rainbow_iqn_apex.memory.broker.admin import keys_from
from rainbow_iqn_apex.memory.broker.connection import BrokerError, Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.scripts import HeldLease, Scripts

LEARNER = -1  # in the place of an actor's number
MAX_HOST = 253  # characters of a host's name, as DNS has it
_NAME = re.compile(rb"[^|]*\|([0-9]{1,10})\|([0-9]{1,12})\|([!-{}~]{1,%d})" % MAX_HOST)


@dataclass(frozen=True)
class LeaseOwner:
    """A process that holds a lease."""

    pid: int
    since: int  # seconds since 1970, by its own clock
    host: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {local_time(self.since)}"


def name_of_this_process() -> bytes:
    """Return this process's name as `read_lease_owner` reads it; any text without a bar may stand before the name."""
    return f"|{os.getpid()}|{int(time.time())}|{this_host()}".encode()


def read_lease_owner(value: bytes) -> LeaseOwner | None:
    """Return the process that a lease's value names; None if it names none."""
    found = _NAME.fullmatch(value)
    if not found or not is_moment(int(found[2])):
        return None
    return LeaseOwner(int(found[1]), int(found[2]), found[3].decode())


def this_host() -> str:
    """Return this machine's name, in printable ASCII without spaces and bars."""
    return re.sub(r"[^!-{}~]", "?", socket.gethostname())[:MAX_HOST] or "?"


def is_moment(seconds: int) -> bool:
    """Return whether `local_time` can show this time."""
    return 0 <= seconds < MOST_SECONDS


def local_time(seconds: int) -> str:
    """Format a time for log lines, as this machine's local time."""
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%dT%H:%M:%S")


def printable(text: str) -> str:
    """Return the text with a question mark for each character that a terminal would not show."""
    return "".join(character if character.isprintable() else "?" for character in text)


TTL_MS = 10_000
_RENEWALS = 4  # in that time


class _Redlock(Redlock):  # type: ignore[misc]  # has no types
    """A Redlock that writes the holder's name behind a lock's random value.

    A lock that cannot be given back is left to expire: redlock-py would log a traceback.
    """

    def get_unique_id(self) -> bytes:
        """A value for a lock of this process."""
        return bytes(super().get_unique_id()) + name_of_this_process()

    def unlock_instance(self, server: Client, resource: str, val: bytes) -> None:
        """Give the lock back."""
        with suppress(BrokerError, RunError, UserError):
            server.eval(self.unlock_script, 1, resource, val)


class Lease:
    """A lock that its holder must keep renewing; use as a context manager, and call `check` before what it protects.

    A killed process leaves a lease that lasts for `TTL_MS` at most; the successor waits until the lease ends. A living
    holder renews the lease meanwhile, and the successor is refused with UserError.

    A lease that lasts for longer than `TTL_MS` was left before the server's clock was set back, or by another client.
    The successor is refused, too. With `break_stale`, the successor takes such a lease if no process renews it for
    `TTL_MS`.

    Scripts look at a lease in the step in which they write, so it lives in the shard of what it protects. Who holds the
    lease of `key` also holds its `copies` in other shards.
    """

    def __init__(
        self, client: Client, key: str, what: str, advice: str, *, break_stale: bool = False, copies: Sequence[str] = ()
    ) -> None:
        self._key = key
        self._copies = copies
        self._client = client
        self._break_stale = break_stale
        self._what = what
        self._advice = advice
        self._redlock = _Redlock([client], retry_count=1, retry_delay=0.01)
        self._scripts = Scripts(client)
        self._left = threading.Event()
        self._error: RunError | None = None
        # A key whose server stays away keeps its own thread waiting, and nobody takes the others for lost.
        self._threads = [
            threading.Thread(target=self._keep, args=(one,), name=f"lease of {what}", daemon=True)
            for one in (key, *copies)
        ]

    def __enter__(self) -> "Lease":
        self._lock = self._acquire()
        self.token: bytes = self._lock.key
        for copy in self._copies:
            self._client.set(copy, self.token, px=TTL_MS)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        for thread in self._threads:
            thread.join()
        if not self._error:  # else the lease is not ours any more, or the server does not answer
            for copy in self._copies:
                self._redlock.unlock_instance(self._client, copy, self.token)
            self._redlock.unlock(self._lock)

    def check(self) -> None:
        """Raise RunError if the lease is lost."""
        if self._error:
            raise self._error

    def _acquire(self) -> Any:  # redlock's Lock has no types
        waiting: WaitReporter | None = None
        remaining: float = TTL_MS
        may_break = self._break_stale
        while not (lock := self._redlock.lock(self._key, TTL_MS)):
            held = self._scripts.read_lease(self._key)
            if held.left_ms > TTL_MS and may_break:
                self._break(held)
                may_break = False
                continue
            if held.left_ms > remaining:  # a living holder has renewed the lease, or it is longer than any holder's
                raise UserError(self._refusal(held))
            remaining = held.left_ms
            waiting = waiting or WaitReporter(f"the lease of {self._what} to run out, {_holder(held)}", interval=2)
            waiting.check()
            if self._client.stop.wait(min(0.25, remaining / 1000 + 0.01)):
                raise Stopped
        return lock

    def _refusal(self, held: HeldLease) -> str:
        lasts = "never ends" if math.isinf(held.left_ms) else f"lasts {held.left_ms / 1000:.0f} more seconds"
        refusal = f"{self._what} is already running, {_holder(held)}; its lease {lasts}"
        if held.left_ms <= TTL_MS:
            return f"{refusal} unless it is renewed: {self._advice}"
        return (
            f"{refusal}, not {TTL_MS / 1000:.0f} at most: the server's clock may have been set back; {self._advice}; "
            "--abandon-other-run takes the lease if that process is gone"
        )

    def _break(self, held: HeldLease) -> None:
        """Take a lease that lasts for too long, unless a living holder renews it meanwhile."""
        print(f"Taking the lease of {self._what} unless it is renewed, {_holder(held)}", flush=True)
        if self._client.stop.wait(TTL_MS / 1000):
            raise Stopped
        self._scripts.break_lease(self._key, held.value, TTL_MS)

    def _keep(self, key: str) -> None:
        while not self._left.wait(TTL_MS / _RENEWALS / 1000):
            try:
                renew = partial(self._scripts.renew, key, self.token, TTL_MS)
                if not (renew() or renew()):  # bits of the first answer may have been flipped
                    self._error = LeaseLostError(
                        f"the lease of {self._what} was lost: another process has taken its place"
                    )
                    return
            except Exception as error:  # noqa: BLE001 - raised again by `check` in the main thread
                self._error = RunError(f"the lease of {self._what} could not be renewed: {error}")
                return


def is_fresh(left_ms: float) -> bool:
    """Return whether a lease that lasts for so long was renewed so lately that its holder lives, or did a moment ago.

    A lease that lasts longer than ours was not renewed: see `Lease`.
    """
    return TTL_MS * (1 - 1.5 / _RENEWALS) < left_ms <= TTL_MS


def _holder(held: HeldLease) -> str:
    return str(read_lease_owner(held.value) or "a process that has not left its name")


_LEASE = re.compile(rb"(/\d+(\.\d+)?)?}:(learner|rank:\d+|[^:]+:((evaluation|inference):)?actor:\d+)")  # after a name


def is_at_work(client: Client, name: str) -> bool:
    """Return whether any process of a run of this name runs; a killed one does until its lease has run out."""
    beginning = Keys(name, "").run.removesuffix("}")
    return any(_LEASE.fullmatch(key[len(beginning.encode()) :]) for key in keys_from(client, beginning))

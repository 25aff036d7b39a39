"""Finds an inference server for an actor: one that is there, and that has the least to do."""

import random
import time
from collections.abc import Callable

from rainbow_iqn_apex.common.text import one_line
from rainbow_iqn_apex.common.waiting import WaitReporter
from rainbow_iqn_apex.memory.broker.access import Tls
from rainbow_iqn_apex.memory.broker.inference_servers import Address, InferenceServers
from rainbow_iqn_apex.programs.inference.link import Asker, Link, Patience
from rainbow_iqn_apex.programs.inference.messages import Refusal

_AVOIDED_S = 15.0  # for which a server that has failed is asked only if there is no other
_BALANCE_S = 20.0  # between two looks whether another server has less to do
_PAUSE_S = 0.3  # between two looks whether a server is there
_START_ONE = "; start one with launch_inference.py"


class ServerFinder:
    """Connects to the servers of a run.

    `check` raises what ends the process: Stopped, RunOver. It is called again and again during a wait.
    """

    def __init__(self, servers: InferenceServers, who: Asker, tls: Tls | None, check: Callable[[], None]) -> None:
        self._who = who
        self._servers = servers
        self._tls = tls
        self.check = check
        self.patience = Patience()
        self._failed: dict[int, float] = {}  # when each server has last failed
        self._trouble = ""  # of the newest of them
        self._next_balance = time.monotonic() + _BALANCE_S

    def find(self, lost: Address | None = None, why: Exception | None = None) -> Link:
        """Return a connection to a server; waits until there is one. Tells of the one that was left, and why.

        Without a reason, another server has less to do.
        """
        if lost is not None and why is None:
            print(f"Inference server {lost.number} has more to do than another: looking for another", flush=True)
        elif lost is not None and why is not None:
            print(f"Inference server {lost.number} is lost ({one_line(why, 200)}): looking for another", flush=True)
            self._fail(lost, why)
        waiting = WaitReporter("an inference server", hint=lambda: self._trouble or _START_ONE)
        while True:
            self.check()
            for address in self._sorted(self._servers.found()):
                self.check()
                if self._has_failed(address):
                    time.sleep(_PAUSE_S)
                try:
                    link = Link(address, self._who, self._servers.secret(), self._tls, self.patience, self.check)
                except (OSError, ValueError, Refusal) as error:  # ValueError: the name of a host that can be none
                    self._fail(address, error)
                    continue
                if lost is not None:
                    print(f"Inference server {address.number} is asked now", flush=True)
                return link
            waiting.check()
            time.sleep(_PAUSE_S)

    def _fail(self, address: Address, why: Exception) -> None:
        self._failed[address.number] = time.monotonic()
        self._trouble = f"; inference server {address.number}: {one_line(why, 200)}"
        if isinstance(why, TimeoutError):
            self.patience.ended()

    def _sorted(self, found: list[Address]) -> list[Address]:
        """Return servers in the order in which to try them."""

        def rank(address: Address) -> tuple[float, int, float]:
            # If all have failed, they take turns: the one with the fewest clients may be one that can never be asked.
            failed = self._failed[address.number] if self._has_failed(address) else 0.0
            return failed, address.clients, random.random()

        return sorted(found, key=rank)

    def _has_failed(self, address: Address) -> bool:
        return time.monotonic() - self._failed.get(address.number, -_AVOIDED_S) < _AVOIDED_S

    def knows_better(self, own: Address) -> bool:
        """Return, seldom, that another server has so much less to do that this client had better go there.

        Each client of a full server goes with a probability, so that half of the difference goes and not all.
        """
        if time.monotonic() < self._next_balance:
            return False
        self._next_balance = time.monotonic() + _BALANCE_S
        clients = {each.number: each.clients for each in self._servers.found() if not self._has_failed(each)}
        if own.number not in clients:
            return False
        surplus = clients[own.number] - min(clients.values())
        return surplus > 1 and random.random() < surplus / (2 * clients[own.number])

"""Follows the run for an inference server, in a thread: fetches weights, and says in Redis where the server is."""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

from torch import Tensor

from rainbow_iqn_apex.common.errors import Stopped
from rainbow_iqn_apex.memory import weights_packet
from rainbow_iqn_apex.memory.broker.connection import BrokerError
from rainbow_iqn_apex.memory.broker.inference_servers import ADDRESS_S, Address, InferenceServers
from rainbow_iqn_apex.memory.broker.record import RunStatus
from rainbow_iqn_apex.memory.broker.run_client import RunClient

_ANNOUNCED_S = ADDRESS_S / 5
_LOOK_S = 1.0  # between two looks at the run's record


class Follower(threading.Thread):
    """Announces what `address` returns, and fetches the newest weights in the place of `wanted`, unless that is None.

    It shows each record of the run that it reads to `look`. `check` raises what has ended it: RunOver or Stopped where
    that is in good order.
    """

    def __init__(
        self, client: RunClient, servers: InferenceServers, address: Callable[[], Address],
        wanted: Mapping[str, Tensor] | None, look: Callable[[RunStatus], None],
    ) -> None:  # fmt: skip
        super().__init__(name="weights", daemon=True)
        self._error: BaseException | None = None
        self._client = client
        self._servers = servers
        self._wanted = wanted
        self._address = address
        self._look = look
        self._found: deque[tuple[dict[str, Tensor], int]] = deque(maxlen=1)
        self._left = threading.Event()

    def take(self) -> tuple[dict[str, Tensor], int] | None:
        """Return weights and their version, once for each version that was fetched."""
        return self._found.pop() if self._found else None

    def check(self) -> None:
        """Raise what has ended it, if anything has."""
        if isinstance(self._error, Exception):
            raise self._error
        if self._error is not None:
            raise Stopped from self._error

    def close(self) -> None:
        """Stop following, and take the address back."""
        self._left.set()
        self.join()
        with suppress(BrokerError):
            self._servers.withdraw(self._address().number)

    def run(self) -> None:
        """Follow until closed."""
        try:
            self._follow()
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            self._error = error

    def _follow(self) -> None:
        version, next_look, next_word = -1, 0.0, 0.0
        self._servers.enlist(self._address().number)  # so that it is seen while it waits for weights, too
        while not self._left.is_set():
            now = time.monotonic()
            if now >= next_look:
                next_look = now + _LOOK_S
                self._look(self._client.record())
                self._client.lease.check()
            if version >= 0 and now >= next_word:
                next_word = now + _ANNOUNCED_S
                self._servers.announce(self._address())
            newest = self._client.wait_for_version(0)
            if newest == version or self._wanted is None:
                version = newest
                self._client.wait_a_moment(newest + 1)
                continue
            packet = self._client.weights(newest, weights_packet.most_bytes(self._wanted), or_newest=True)
            version = int(packet.meta["version"])
            self._found.append((weights_packet.weights_for(self._wanted, packet), version))

"""The inference servers of a run as Redis knows them: where each listens, its key, and how many ask it.

Redis is for finding each other alone; requests go by sockets of their own. A server adds its number to the stream of
its kind, as an actor does, and writes its address again and again: one that is not written any more expires. Without
the key of an address nobody can ask the server, so whoever may read an actor's keys in Redis may ask.
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Annotated, cast

from msgspec import Meta

from rainbow_iqn_apex.common.schema import read_record
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.leases import MAX_HOST
from rainbow_iqn_apex.memory.broker.record import registered_actors
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS

ADDRESS_S = 10  # for which an address lasts that is not written again
_MOST_BYTES = 1024  # of an address


@dataclass(frozen=True)
class Address:
    """Where a server listens: on a port of its own machine, and on one of a host if other machines may ask it, too."""

    number: Annotated[int, Meta(ge=0, lt=MAX_ACTORS)]
    machine: Annotated[str, Meta(max_length=MAX_HOST)]  # to whose programs `local_port` is open
    local_port: Annotated[int, Meta(gt=0, lt=1 << 16)]
    host: Annotated[str, Meta(max_length=255)]
    port: Annotated[int, Meta(ge=0, lt=1 << 16)]  # 0: none
    key: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]  # the public half of its CURVE key
    clients: Annotated[int, Meta(ge=0, le=10**6)]  # that ask it now


class InferenceServers:
    """Finds the servers of a run, and lets a server be found."""

    def __init__(self, client: Client, name: str, run_id: str, shards: int) -> None:
        self.keys = Keys(name, run_id, shards=shards, inference=True)
        self._client = client

    def enlist(self, number: int) -> None:
        """Let a server be found by its number."""
        self._client.xadd(self.keys.beside(number).actors, {"actor": number}, maxlen=2 * MAX_ACTORS)

    def announce(self, address: Address) -> None:
        """Write where a server listens; it counts as gone after ADDRESS_S.

        Write the server's number, too, if Redis has lost it.
        """
        if address.number not in registered_actors(self._client, self.keys.beside(address.number)).actors:
            self.enlist(address.number)
        self._client.set(self._key(address.number), json.dumps(asdict(address)), ex=ADDRESS_S)

    def withdraw(self, number: int) -> None:
        """Delete a server's address."""
        self._client.delete(self._key(number))

    def found(self) -> list[Address]:
        """Return the servers that are there, in order of their numbers; what is damaged counts as none."""
        numbers = set[int]().union(*(registered_actors(self._client, keys).actors for keys in self.keys.every_shard()))
        found = []
        for number in sorted(numbers):
            data = cast(bytes, self._client.getrange(self._key(number), 0, _MOST_BYTES))
            with suppress(ValueError):
                if (address := read_record(data, Address, _MOST_BYTES)).number == number:
                    found.append(address)
        return found

    def _key(self, number: int) -> str:
        return f"{self.keys.actor_lease(number)}:address"

"""The inference servers of a run as Redis knows them: where each listens, how many ask it, and the run's secret.

Redis is for finding each other alone; requests go by sockets of their own. A server adds its number to the stream of
its kind, as an actor does, and writes its address again and again: one that is not written any more expires. The secret
is what both ends prove to have when they meet. Whoever may read an actor's keys can read it.
"""

import json
import re
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Annotated, cast

from msgspec import Meta

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.common.schema import read_record
from rainbow_iqn_apex.memory.broker.connection import Client
from rainbow_iqn_apex.memory.broker.keys import Keys
from rainbow_iqn_apex.memory.broker.leases import MAX_HOST
from rainbow_iqn_apex.memory.broker.record import registered_actors
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS

ADDRESS_S = 10  # for which an address lasts that is not written again
_MOST_BYTES = 1024  # of an address
_SECRET = re.compile(rb"[0-9a-f]{64}")


@dataclass(frozen=True)
class Address:
    """Where a server listens: on a path of its own machine, and on a port if other machines may ask it, too."""

    number: Annotated[int, Meta(ge=0, lt=MAX_ACTORS)]
    machine: Annotated[str, Meta(max_length=MAX_HOST)]  # on which the path is
    path: Annotated[str, Meta(max_length=100)]
    host: Annotated[str, Meta(max_length=255)]
    port: Annotated[int, Meta(ge=0, lt=1 << 16)]  # 0: none
    clients: Annotated[int, Meta(ge=0, le=10**6)]  # that ask it now


class InferenceServers:
    """Finds the servers of a run, and lets a server be found."""

    def __init__(self, client: Client, name: str, run_id: str, shards: int) -> None:
        self.keys = Keys(name, run_id, shards=shards, inference=True)
        self._client = client
        self._secret = b""  # as it was last seen

    def secret(self) -> bytes:
        """Return the run's secret; make it, if nobody has, and write it again if Redis has lost it.

        Raises RunError for one that is none of ours.
        """
        key = f"{self.keys.beside(0).beginning}inference:actor:secret"
        self._client.set(key, self._secret or secrets.token_hex(32), nx=True)
        secret = cast(bytes, self._client.getrange(key, 0, _MOST_BYTES))
        if not _SECRET.fullmatch(secret):
            raise RunError(f"the secret of the inference servers in Redis, {key}, is damaged: delete it with redis-cli")
        self._secret = secret
        return secret

    def enlist(self, number: int) -> None:
        """Let a server be found by its number."""
        self._client.xadd(self.keys.beside(number).actors, {"actor": number}, maxlen=2 * MAX_ACTORS)

    def announce(self, address: Address) -> None:
        """Write where a server listens; it counts as gone after ADDRESS_S.

        Write the server's number and the run's secret, too, if Redis has lost them. Raises RunError if the secret is
        another one than this server's: actors would refuse it.
        """
        if address.number not in registered_actors(self._client, self.keys.beside(address.number)).actors:
            self.enlist(address.number)
        if (before := self._secret) and self.secret() != before:
            raise RunError(
                "the inference servers have another secret, made after Redis had lost it: start this one again"
            )
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

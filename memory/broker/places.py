"""Where the server of each slot is now: as the nodes of a cluster tell it, or as Sentinels do."""

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.broker.access import explain_denial
from rainbow_iqn_apex.memory.broker.connection import Aside, BrokerError
from rainbow_iqn_apex.memory.broker.slots import SLOTS

_MOST_BYTES = 1 << 24  # of a reply
_UNKNOWN = ("", "?")  # in the place of a host: that of the node that was asked


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int


class Place(NamedTuple):
    """The servers of a slot."""

    master: Address
    replicas: tuple[Address, ...] = ()


@dataclass
class _Asked:
    """Asks servers, each time another one first: one that is cut off would tell of former times again and again.

    Raises UserError if the user may not ask.
    """

    seeds: Sequence[Address]
    open_aside: Callable[[Address], Aside]
    are_sentinels: bool = False

    def __post_init__(self) -> None:
        self._turns = itertools.count()
        self.failure: Exception | None = None  # the last one

    def ask(self, known: Iterable[Address], question: Callable[[Aside], Any]) -> tuple[Address, Any] | None:
        """Return the first answer that is not None, and whose it is."""
        addresses = list(dict.fromkeys([*known, *self.seeds]))
        first = next(self._turns) % len(addresses)
        for address in addresses[first:] + addresses[:first]:
            try:
                with closing(self.open_aside(address)) as aside, aside.replies_up_to(_MOST_BYTES):
                    if (answer := question(aside)) is not None:
                        return address, answer
            except BrokerError as error:
                if denied := explain_denial(str(error), of_sentinel=self.are_sentinels):
                    raise UserError(denied) from error
                self.failure = error
        return None


class ClusterPlaces:
    """Where the slots of a cluster are, as one of its nodes told last; every thread may use it."""

    def __init__(self, seeds: Sequence[Address], open_aside: Callable[[Address], Aside]) -> None:
        self._asked = _Asked(seeds, open_aside)
        self._lock = threading.Lock()
        self._places: dict[int, Place] = {}
        self._looks = 0

    def of(self, slot: int) -> Place | None:
        """Return the servers of a slot, None if it has none."""
        return self._places.get(slot)

    def look(self) -> None:
        """Ask again; what was found before stays where none answers. Of threads that ask together, one asks for all."""
        looks = self._looks
        with self._lock:
            if looks != self._looks:
                return
            known = {address for place in set(self._places.values()) for address in (place.master, *place.replicas)}
            found = self._asked.ask(sorted(known), lambda node: _send(node, "CLUSTER", "SLOTS") or None)
            if found:
                self._places = dict(_parse(*found))
            self._looks += 1

    def move(self, slot: int, master: Address) -> None:
        """Note a slot's new master, of which a node has told; it brings the replicas of its other slots."""
        with self._lock:
            same = next((place for place in set(self._places.values()) if place.master == master), Place(master))
            self._places[slot] = same

    def slots(self) -> list[int]:
        """Return a slot of each master."""
        return sorted({place.master: slot for slot, place in sorted(self._places.items(), reverse=True)}.values())

    @property
    def missing(self) -> int:
        """Return how many slots no node has."""
        return SLOTS - len(self._places)


def _send(node: Aside, *words: str) -> Any:
    """Send words one by one, so that redis-py, which knows commands of two words, leaves the reply as it is."""
    return node.execute_command(*words)  # type: ignore[no-untyped-call]


def _parse(asked: Address, reply: Any) -> Iterable[tuple[int, Place]]:
    for first, last, master, *replicas in reply:
        place = Place(_address(asked, master), tuple(_address(asked, node) for node in replicas))
        yield from ((slot, place) for slot in range(max(0, int(first)), min(int(last) + 1, SLOTS)))


def _address(asked: Address, node: Any) -> Address:
    host = (node[0] or b"").decode()
    return Address(asked.host if host in _UNKNOWN else host, int(node[1]))


class SentinelPlaces:
    """Where the master of a service is, and its replicas, as a Sentinel told last."""

    def __init__(self, service: str, sentinels: Sequence[Address], open_aside: Callable[[Address], Aside]) -> None:
        self._service = service
        self._asked = _Asked(sentinels, open_aside, are_sentinels=True)
        self._place: Place | None = None

    def of(self, _slot: int) -> Place | None:
        """Return the servers of a slot: one master has all slots."""
        return self._place

    def look(self) -> None:
        """Ask again; what was found before stays where none answers."""
        if found := self._asked.ask([], self._question):
            self._place = found[1]

    @property
    def failure(self) -> Exception | None:
        """Return the last error of a Sentinel, None if each has answered."""
        return self._asked.failure

    def _question(self, sentinel: Aside) -> Place | None:
        master = _send(sentinel, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
        if master is None:
            return None
        found = _send(sentinel, "SENTINEL", "REPLICAS", self._service)
        replicas = [dict(zip(fields[::2], fields[1::2], strict=True)) for fields in found]
        up = [replica for replica in replicas if b"down" not in replica[b"flags"]]
        return Place(
            Address(master[0].decode(), int(master[1])),
            tuple(Address(replica[b"ip"].decode(), int(replica[b"port"])) for replica in up),
        )

    def move(self, _slot: int, _master: Address) -> None:
        """Note nothing: no server of a service tells of another one."""

    def slots(self) -> list[int]:
        """Return a slot of each master."""
        return [0]


Places = ClusterPlaces | SentinelPlaces

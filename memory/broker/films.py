"""Where films of evaluation episodes are in Redis: one string each for the best and the newest of a run.

A film may be lost at any time. So films use a connection of their own that gives up at once.
"""

from collections.abc import Iterable
from contextlib import suppress

from rainbow_iqn_apex.memory.broker.connection import BrokerError, Client
from rainbow_iqn_apex.memory.broker.reports import content_of
from rainbow_iqn_apex.memory.broker.transport import Keys


class FilmStore:
    """Writes and reads the films of a run."""

    def __init__(self, client: Client, name: str, run_id: str) -> None:
        self._client = client.aside()
        self._keys = Keys(name, run_id, evaluation=True)

    def write(self, place: str, film: bytes) -> None:
        """Replace the film of this place, whatever its key holds; raises BrokerError if that fails."""
        self._client.set(self._keys.film(place), film)

    def read(self, places: Iterable[str], most: int) -> dict[str, bytes]:
        """Return the first `most` bytes of the films that there are; raises BrokerError without an answer.

        A key of another type than ours, which another client has written, counts as no film.
        """
        wanted = list(places)
        replies = self._client.batch([("GETRANGE", self._keys.film(place), 0, most - 1) for place in wanted])
        return {place: data for place, reply in zip(wanted, replies, strict=True) if (data := content_of(reply))}

    def close(self) -> None:
        """Close the connection."""
        with suppress(BrokerError):
            self._client.close()

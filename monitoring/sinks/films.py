"""Finds the films that evaluation actors have left in Redis, and chooses from them for sinks that keep all."""

import math
from collections.abc import Mapping
from contextlib import suppress

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.memory.broker.connection import BrokerError
from rainbow_iqn_apex.memory.broker.films import FilmStore
from rainbow_iqn_apex.monitoring.film import (
    FILM_SLOTS,
    HEADER_BYTES,
    MAX_BYTES,
    Film,
    FilmError,
    FilmInfo,
    FilmSlot,
    decode,
    decode_info,
)
from rainbow_iqn_apex.monitoring.sinks.sink import Moment
from rainbow_iqn_apex.monitoring.sinks.steady_clock import SteadyClock

_NEWEST_S = 60.0  # between two films of the newest episode, however many evaluation actors there are
_KEPT = 100  # films of the newest episode, per e-fold of a run's length: a week's run keeps some 600
TAGS: dict[FilmSlot, str] = {"best": "evaluation/best_episode", "newest": "evaluation/newest_episode"}


class FilmReader:
    """Returns each film once. `shown` are the films that the run has shown before this process began."""

    def __init__(self, store: FilmStore, shown: dict[FilmSlot, FilmInfo]) -> None:
        self._store = store
        self._seen = shown.copy()  # good or bad
        self._best = shown["best"].score if "best" in shown else None
        self._next_newest = -math.inf
        self._has_printed = False

    def read(self, now: float, *, last: bool = False) -> dict[FilmSlot, Film]:
        """Return the films that are new; none if Redis does not answer, and `last` a newest one in any case.

        `now` is a time [s] that only goes forward.
        """
        slots = tuple(slot for slot in FILM_SLOTS if slot == "best" or last or now >= self._next_newest)
        found: dict[FilmSlot, Film] = {}
        with suppress(BrokerError, RunError):
            headers = self._store.read(slots, HEADER_BYTES)
            for slot in slots:
                try:
                    if slot in headers and (film := self._film(slot, decode_info(headers[slot]))):
                        found[slot] = film
                except FilmError as error:
                    self._print_once(error)
        if "newest" in found:
            self._next_newest = now + _NEWEST_S
        if "best" in found:
            self._best = found["best"].info.score
        return found

    def _film(self, slot: FilmSlot, info: FilmInfo) -> Film | None:
        """Return the film of a header that was not seen before; raises FilmError, BrokerError."""
        if info == self._seen.get(slot) or not self._is_better(slot, info):
            return None
        data = self._store.read((slot,), MAX_BYTES + 1).get(slot, b"")
        self._seen[slot] = info  # also if it is damaged: it is not read again and again
        film = decode(data)
        if not self._is_better(slot, film.info):  # it was replaced just now
            return None
        self._seen[slot] = film.info
        return film

    def _is_better(self, slot: FilmSlot, info: FilmInfo) -> bool:
        """Return whether a film may be shown: the best one is worse where Redis has lost a better one."""
        return slot != "best" or self._best is None or info.score > self._best

    def _print_once(self, error: FilmError) -> None:
        """Print one line in the life of a process."""
        if not self._has_printed:
            self._has_printed = True
            print(f"A film of an evaluation episode is not shown: Redis holds {error}", flush=True)

    def close(self) -> None:
        """Close the connection."""
        self._store.close()


class KeptFilms:
    """Chooses films for a sink that keeps all: every best one, but the longer a run, the fewer of the newest."""

    def __init__(self) -> None:
        self._clock = SteadyClock()
        self._began: float | None = None
        self._next = -math.inf

    def choose(self, moment: Moment) -> Mapping[FilmSlot, Film]:
        """Return the films of a moment that shall be kept."""
        now = self._clock.at(moment.at)
        began = self._began = now if self._began is None else self._began
        films = moment.films
        if "newest" in films:
            if now < self._next:
                return {slot: film for slot, film in films.items() if slot != "newest"}
            self._next = now + max(_NEWEST_S, (now - began) / _KEPT)
        return films

"""Films the episodes of an evaluation actor, and leaves the newest and the best in Redis for the learner.

Nothing here ends a run or keeps it waiting: a film that cannot be written is left out, and one line is printed.
"""

import time

from rainbow_iqn_apex.common.text import one_line
from rainbow_iqn_apex.environments.interface import Environment
from rainbow_iqn_apex.environments.scores import EpisodeRecord
from rainbow_iqn_apex.memory.broker.connection import BrokerError
from rainbow_iqn_apex.memory.broker.record import RunStatus
from rainbow_iqn_apex.memory.broker.reports import FilmStore
from rainbow_iqn_apex.monitoring.video import (
    HEADER_BYTES,
    Film,
    FilmError,
    FilmInfo,
    TimeLapse,
    decode_info,
    encode_film,
)

_NEWEST_S = 60.0  # between two films of the newest episode
_AGAIN_S = 60.0  # after a film could not be written


class Filmer:
    """Films one episode after the other.

    It holds its own best film, and writes it again if Redis has lost it, or another actor has just written a worse one.
    """

    def __init__(self, store: FilmStore, actor: int) -> None:
        self._store = store
        self._actor = actor
        self._lapse = TimeLapse()
        self._pictures_per_second = 1.0
        self._next_newest = self._next_try = 0.0
        self._best: tuple[float, bytes] | None = None  # score and film
        self._has_printed = False

    def begin(self, environment: Environment) -> TimeLapse:
        """Return what takes the pictures of the episode that begins."""
        self._lapse = TimeLapse(blinks=getattr(environment, "blinks", False))
        self._pictures_per_second = environment.pictures_per_second
        return self._lapse

    def keep(self, record: EpisodeRecord, began: RunStatus, version: int) -> None:
        """Write the film of the episode that has ended where it belongs.

        The run was `began` when the weights of this version were pulled.
        """
        if (now := time.monotonic()) < self._next_try:
            return
        score = float(record.score_saber)
        film = b""
        is_best = self._best is None or score > self._best[0]
        if is_best or now >= self._next_newest:
            film = self._encode(record, began, version)
        if is_best:
            self._best = score, film
        try:
            self._write(film, now)
        except BrokerError as error:
            self._next_try = now + _AGAIN_S
            if not self._has_printed:  # one line in the life of a process
                self._has_printed = True
                print(f"Not shown: Redis takes no film of an episode ({one_line(error)})", flush=True)

    def _encode(self, record: EpisodeRecord, began: RunStatus, version: int) -> bytes:
        pictures = self._lapse.pictures()
        count, height, width, _ = pictures.shape
        info = FilmInfo(
            score=float(record.score_saber),
            at=time.time(),
            rate=self._pictures_per_second / self._lapse.per_step,
            step=began.t_actors,
            version=version,
            actor=self._actor,
            episode=record.episode,
            stride=self._lapse.stride,
            pictures=count,
            height=height,
            width=width,
        )
        return encode_film(Film(info, pictures))

    def _write(self, film: bytes, now: float) -> None:
        """Write the film as the newest if one is due, and the best film if Redis has a worse one or none."""
        if now >= self._next_newest:
            self._next_newest = now + _NEWEST_S
            self._store.write("newest", film)
        there = self._best_there()
        if self._best and (there is None or self._best[0] > there):
            self._store.write("best", self._best[1])

    def _best_there(self) -> float | None:
        """Return the score of the best film in Redis; None if there is none, or it is damaged."""
        found = self._store.read(["best"], HEADER_BYTES)
        try:
            return decode_info(found["best"]).score if found else None
        except FilmError:
            return None

    def close(self) -> None:
        """Close the connection."""
        self._store.close()

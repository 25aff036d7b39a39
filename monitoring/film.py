"""A film of an evaluation episode: small pictures at even intervals, and what was played.

Films travel through Redis as other messages do, with the changes from picture to picture. They are no encoded videos:
the learner would give the bytes of a peer to a codec.
"""

from dataclasses import asdict, dataclass, replace
from typing import Annotated, Literal, get_args

import numpy as np
from msgspec import Meta

from rainbow_iqn_apex.common.schema import Moment, Number, Whole, parse_record
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS
from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.memory.wire import Tag

FilmSlot = Literal["best", "newest"]  # of an episode among those that were filmed
FILM_SLOTS: tuple[FilmSlot, ...] = get_args(FilmSlot)
MAX_BYTES = 1 << 22  # of a film; a tenth of that is usual
MAX_PICTURES = 900  # a minute of an Atari game, a picture for each agent step
MAX_HEIGHT, MAX_WIDTH = 128, 160  # pixels
HEADER_BYTES = 1024  # of a film's bytes, which hold its description


class FilmError(ValueError):
    """Bytes that no evaluation actor of this project can have written as a film."""


@dataclass(frozen=True)
class FilmInfo:
    """Says what a film shows."""

    score: Number  # points, at the episode's end under SABER's rules
    at: Moment  # seconds since 1970, when the episode ended
    rate: Annotated[float, Meta(gt=0, le=1000)]  # pictures a second at which the film is shown
    step: Whole  # agent steps that the run had played when these weights were pulled
    version: Whole  # of the weights
    actor: Annotated[int, Meta(ge=0, lt=MAX_ACTORS)]  # number of the evaluation actor
    episode: Whole  # number of its message
    stride: Annotated[int, Meta(ge=1, lt=2**53)]  # agent steps from picture to picture
    pictures: Annotated[int, Meta(ge=1, le=MAX_PICTURES)]
    height: Annotated[int, Meta(ge=1, le=MAX_HEIGHT)]  # pixels
    width: Annotated[int, Meta(ge=1, le=MAX_WIDTH)]

    @property
    def raw_bytes(self) -> int:
        """Bytes of the pictures."""
        return self.pictures * self.height * self.width * 3

    @property
    def caption(self) -> str:
        """Describe for people what the film shows."""
        faster = f", {self.stride} times as fast" if self.stride > 1 else ""
        return f"score {self.score:.12g} after {self.step:,} agent steps{faster}"


@dataclass(frozen=True)
class Film:
    """Pictures of an episode."""

    info: FilmInfo
    pictures: Array  # [pictures, height, width, 3] uint8 RGB

    def thinned(self, most: int) -> "Film":
        """Return the film with at most so many pictures, which are as evenly spaced; it shows more in a second."""
        pictures, every = self.pictures, -(-len(self.pictures) // most)
        if every == 1:
            return self
        kept = pictures[::every]
        return Film(replace(self.info, stride=self.info.stride * every, pictures=len(kept)), kept)


def encode(film: Film) -> bytes:
    """Return a film's bytes; one that would be too large gets fewer pictures."""
    changes = film.pictures.copy()
    changes[1:] -= film.pictures[:-1]  # modulo 256
    data = wire.encode(Tag.FILM, asdict(film.info), {"changes": changes})
    return encode(film.thinned((len(film.pictures) + 1) // 2)) if len(data) > MAX_BYTES else data


def decode_info(data: bytes) -> FilmInfo:
    """Parse what a film shows from its first `HEADER_BYTES`, or more; raises FilmError for anything that is none."""
    try:
        return parse_record(wire.peek_meta(data), FilmInfo)
    except ValueError as error:
        raise FilmError(f"a damaged film ({error})") from error


def decode(data: bytes) -> Film:
    """Parse a film; raises FilmError for anything that `encode` cannot have made."""
    if len(data) > MAX_BYTES:
        raise FilmError(f"a film of more than {MAX_BYTES} bytes")
    info = decode_info(data)
    try:
        packet = wire.decode(data, info.raw_bytes)
    except ValueError as error:
        raise FilmError(f"a damaged film ({error})") from error
    changes = packet.arrays.get("changes")
    shape = (info.pictures, info.height, info.width, 3)
    if packet.tag is not Tag.FILM or changes is None or changes.dtype != np.uint8 or changes.shape != shape:
        raise FilmError("a film with other pictures than its header claims")
    return Film(info, np.cumsum(changes, axis=0, dtype=np.uint8))

"""A film of an evaluation episode: small pictures at even intervals, and what was played.

Films travel through Redis as a header of fixed size and the changes from picture to picture, compressed by zlib. They
are no encoded videos: the learner would give the bytes of a peer to a codec. Whoever may write to Redis may have
written a film, so `decode` checks sizes and ranges, and never decompresses more than the header claims.
"""

import math
import struct
import zlib
from dataclasses import asdict, astuple, dataclass, fields
from typing import Any, Literal, get_args

import numpy as np

from rainbow_iqn_apex.memory.broker.lease_owner import is_moment
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS
from rainbow_iqn_apex.memory.rows import Array

FilmSlot = Literal["best", "newest"]  # of an episode among those that were filmed
FILM_SLOTS: tuple[FilmSlot, ...] = get_args(FilmSlot)
MAX_BYTES = 1 << 22  # of a film; a tenth of that is usual
MAX_PICTURES = 900  # a minute of an Atari game, a picture for each agent step
MAX_HEIGHT, MAX_WIDTH = 128, 160  # pixels
_MAX_RATE = 1000.0
_MAX_COUNT = 2**53
_MAGIC = b"RIQF0001"
_HEADER = struct.Struct(">8s 3d 5q 3H")
HEADER_BYTES = _HEADER.size
_LEVEL = 6  # of zlib: half the size of level 1, for 40 ms more


class FilmError(ValueError):
    """Bytes that no evaluation actor of this project can have written as a film."""


@dataclass(frozen=True)
class FilmInfo:
    """Says what a film shows; raises FilmError for values that no film has."""

    score: float  # points, at the episode's end under SABER's rules
    at: float  # seconds since 1970, when the episode ended
    rate: float  # pictures a second at which the film is shown
    step: int  # agent steps that the run had played when these weights were pulled
    version: int  # of the weights
    actor: int  # number of the evaluation actor
    episode: int  # number of its message
    stride: int  # agent steps from picture to picture
    pictures: int
    height: int  # pixels
    width: int

    def __post_init__(self) -> None:
        numbers = (self.score, self.at, self.rate)
        counts = (self.step, self.version, self.actor, self.episode, self.stride)
        sizes = ((self.pictures, MAX_PICTURES), (self.height, MAX_HEIGHT), (self.width, MAX_WIDTH))
        if not all(type(number) in (int, float) and math.isfinite(number) for number in numbers):
            raise FilmError("a film has a number that is none")
        if not all(type(count) is int and 0 <= count < _MAX_COUNT for count in counts):
            raise FilmError("a film has a count that is none, or is too large")
        if not all(type(size) is int and 0 < size <= most for size, most in sizes):
            raise FilmError("a film has another size than this release makes")
        if self.actor >= MAX_ACTORS or not self.stride or not 0 < self.rate <= _MAX_RATE:
            raise FilmError("a film has a number that is out of range")
        if not 0 <= self.at < _MAX_COUNT or not is_moment(int(self.at)):
            raise FilmError("a film has a time that is none")

    @property
    def raw_bytes(self) -> int:
        """Bytes of the pictures."""
        return self.pictures * self.height * self.width * 3

    @property
    def caption(self) -> str:
        """Tell people what the film shows."""
        faster = f", {self.stride} times as fast" if self.stride > 1 else ""
        return f"score {self.score:g} after {self.step:,} agent steps{faster}"


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
        return _film(self.info, pictures[::every], self.info.stride * every)


def _film(info: FilmInfo, pictures: Array, stride: int) -> Film:
    count, height, width, _ = pictures.shape
    changed = {"stride": stride, "pictures": count, "height": height, "width": width}
    return Film(FilmInfo(**asdict(info) | changed), pictures)


def encode(film: Film) -> bytes:
    """Return a film's bytes; one that would be too large gets fewer pictures."""
    changes = film.pictures.copy()
    changes[1:] -= film.pictures[:-1]  # modulo 256
    data = zlib.compress(changes.tobytes(), _LEVEL)
    if HEADER_BYTES + len(data) > MAX_BYTES:
        return encode(film.thinned((len(film.pictures) + 1) // 2))
    return _HEADER.pack(_MAGIC, *astuple(film.info)) + data


def decode_info(data: bytes) -> FilmInfo:
    """Parse the header of a film, which may be all of the bytes; raises FilmError for anything that is none."""
    if len(data) < HEADER_BYTES:
        raise FilmError("a film without a whole header")
    magic, *values = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise FilmError("a film of another release, or none")
    return FilmInfo(*values)


def decode(data: bytes) -> Film:
    """Parse a film; raises FilmError for anything that `encode` cannot have made."""
    if len(data) > MAX_BYTES:
        raise FilmError(f"a film of more than {MAX_BYTES} bytes")
    info = decode_info(data)
    try:
        expander = zlib.decompressobj()
        # One byte more than is claimed: so the end of the data is read, and a surplus is noticed.
        raw = expander.decompress(data[HEADER_BYTES:], info.raw_bytes + 1)
    except zlib.error as error:
        raise FilmError("a film whose pictures are damaged") from error
    if len(raw) != info.raw_bytes or not expander.eof or expander.unused_data:
        raise FilmError("a film with more or fewer pictures than its header claims")
    changes = np.frombuffer(raw, np.uint8).reshape(info.pictures, info.height, info.width, 3)
    return Film(info, np.cumsum(changes, axis=0, dtype=np.uint8))


def from_json(content: Any) -> FilmInfo:
    """Return what parsed JSON tells of a film, a value for each field; raises FilmError for anything else."""
    if not isinstance(content, dict) or content.keys() != {f.name for f in fields(FilmInfo)}:
        raise FilmError("a film has other fields than this release writes")
    return FilmInfo(**content)

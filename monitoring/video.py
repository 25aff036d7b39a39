"""Videos of episodes: films, which travel through Redis, and the files that browsers and TensorBoard show.

A `TimeLapse` collects an episode's pictures. An evaluation actor sends them as a `Film`, in which each picture is its
change from the one before. A film is no encoded video, as the learner would give the bytes of a peer to a codec.

Video files are WebM with VP8, the one suitable format in OpenCV's wheels. They have an encoder for MPEG-4 Part 2, too,
but browsers do not play it. Their encoder for VP9 is many times slower, and their encoder for H.264 needs special
hardware. OpenCV and Pillow are imported by the functions that need them: not every process does.
"""

import io
import math
import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import numpy as np
from msgspec import Meta

from rainbow_iqn_apex.common.files import short_path, written_aside
from rainbow_iqn_apex.common.schema import Moment, Number, Whole, parse_record
from rainbow_iqn_apex.memory import wire
from rainbow_iqn_apex.memory.limiter import MAX_ACTORS
from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.memory.wire import Tag

if TYPE_CHECKING:
    from cv2 import VideoWriter

FilmSlot = Literal["best", "newest"]  # of an episode among those that were filmed
FILM_SLOTS: tuple[FilmSlot, ...] = get_args(FilmSlot)
FILM_BYTES = 1 << 22  # at most; a tenth of that is usual
HEADER_BYTES = 1024  # of a film's bytes, which hold its description
MAX_PICTURES = 900  # of a film: a minute of an Atari game, a picture for each agent step
MAX_HEIGHT = 128  # pixels of a film
MAX_WIDTH = 160

VIDEO_BYTES = 2_000_000  # of a time lapse's video, at most; half of that is usual
VIDEO_SIZE = 340, 1280  # largest height and width [pixels] of the pictures in such a video
_HEIGHT = 240  # pixels: smaller pictures are enlarged to about this height, and browsers enlarge the rest
_BLINKING = 2  # pictures: Atari games draw some things in every other frame alone
_SILENCE = threading.Lock()  # sinks write their videos in threads of their own

GIF_BYTES = 1 << 20  # at most; a tenth of that is usual
_GIF_PICTURES = 300  # 20 s of an Atari game
_GIF_COLOURS = 64  # of a picture: games have fewer
_GIF_LEAST_MS = 20  # of a picture: browsers show shorter ones for longer


class FilmError(ValueError):
    """Bytes that no evaluation actor of this project can have written as a film."""


@dataclass(frozen=True)
class FilmInfo:
    """Describes what a film shows."""

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
        every = -(-len(self.pictures) // most)
        if every == 1:
            return self
        kept = self.pictures[::every]
        return Film(replace(self.info, stride=self.info.stride * every, pictures=len(kept)), kept)

    def halved(self) -> "Film":
        """Return the film with every second picture."""
        return self.thinned((len(self.pictures) + 1) // 2)


def encode_film(film: Film) -> bytes:
    """Return a film's bytes; one that would be too large gets fewer pictures."""
    changes = np.diff(film.pictures, axis=0, prepend=np.uint8(0))  # modulo 256
    data = wire.encode(Tag.FILM, asdict(film.info), {"changes": changes})
    return encode_film(film.halved()) if len(data) > FILM_BYTES else data


def decode_info(data: bytes) -> FilmInfo:
    """Parse what a film shows from its first `HEADER_BYTES`, or more; raises FilmError for anything that is none."""
    try:
        return parse_record(wire.peek_meta(data), FilmInfo)
    except ValueError as error:
        raise FilmError(f"a damaged film ({error})") from error


def decode_film(data: bytes) -> Film:
    """Parse a film; raises FilmError for anything that `encode_film` cannot have made."""
    if len(data) > FILM_BYTES:
        raise FilmError(f"a film of more than {FILM_BYTES} bytes")
    info = decode_info(data)
    shape = (info.pictures, info.height, info.width, 3)
    try:
        packet = wire.decode(data, math.prod(shape))
    except ValueError as error:
        raise FilmError(f"a damaged film ({error})") from error
    changes = packet.arrays.get("changes")
    if packet.tag is not Tag.FILM or changes is None or changes.dtype != np.uint8 or changes.shape != shape:
        raise FilmError("a film with other pictures than its header claims")
    return Film(info, np.cumsum(changes, axis=0, dtype=np.uint8))


class TimeLapse:
    """Collects pictures of an episode at even intervals, in bounded memory, however long the episode is.

    When it is full, it drops every second picture, and takes half as many from then on: a long episode is shown faster.
    Where something blinks in the pictures of a step, the brighter ones of the last two are taken.
    """

    def __init__(
        self, most: int = MAX_PICTURES, largest: tuple[int, int] = (MAX_HEIGHT, MAX_WIDTH), *, blinks: bool = False
    ) -> None:
        self.stride = 1  # steps from picture to picture
        self.per_step = 1  # pictures, at most
        self._newest = _BLINKING if blinks else 1
        self._most = most
        self._largest = largest
        self._steps = 0
        self._size = (0, 0)
        self._kept: list[bytes] = []  # compressed: a worker of an evaluation has half a gigabyte

    def add(self, draw: Callable[[], Sequence[Array]]) -> None:
        """Count a step or reset; take its pictures [height, width, 3] uint8 RGB, of any size, if they are due.

        There are none of a step that ended the episode before there was anything to see.
        """
        if self._steps % self.stride == 0 and len(self._kept) == self._most:
            self._thin()
        is_due = self._steps % self.stride == 0
        self._steps += 1
        if is_due and (pictures := draw()):
            self.per_step = max(self.per_step, len(pictures))
            # The brighter of the last frames, as agents see them; a stride alone would never show what blinks.
            self._kept.append(zlib.compress(self._small(reduce(np.maximum, pictures[-self._newest :])).tobytes(), 1))

    def _thin(self) -> None:
        self._kept = self._kept[::2]
        self.stride *= 2

    def _small(self, picture: Array) -> Array:
        import cv2

        if not self._kept:
            height, width = picture.shape[:2]
            self._size = small_size(height, width, self._largest)
        return cv2.resize(picture[:, :, :3], self._size[::-1], interpolation=cv2.INTER_AREA)

    def __iter__(self) -> Iterator[Array]:
        """Yield the pictures [height, width, 3] uint8 RGB, that of the first step first."""
        for kept in self._kept:
            yield np.frombuffer(zlib.decompress(kept), np.uint8).reshape(*self._size, 3)

    def pictures(self) -> Array:
        """Return all of them at once, [pictures, height, width, 3] uint8 RGB."""
        return np.stack([*self])

    def write(self, path: Path, pictures_per_second: float) -> None:
        """Write a video of at most VIDEO_BYTES, all or nothing, with fewer pictures if need be; raises OSError.

        `pictures_per_second` are those of the environment at normal speed.
        """
        write_video(path, self, pictures_per_second / self.per_step)
        while path.stat().st_size > VIDEO_BYTES and len(self._kept) > 1:
            self._thin()
            write_video(path, self, pictures_per_second / self.per_step)


def small_size(height: int, width: int, largest: tuple[int, int] = (MAX_HEIGHT, MAX_WIDTH)) -> tuple[int, int]:
    """Return height and width of pictures, halved until they are no larger than `largest`."""
    while height > largest[0] or width > largest[1]:
        height, width = max(1, height // 2), max(1, width // 2)
    return height, width


def write_video(path: Path, pictures: Iterable[Array], rate: float) -> None:
    """Write pictures [height, width, 3] uint8 RGB of equal sizes as a video (`*.webm`), all or nothing.

    `rate` is in pictures a second. Raises OSError without an encoder, and if the file does not hold all pictures, which
    OpenCV never reports.
    """
    import cv2

    with written_aside(path, ".webm") as aside:  # OpenCV chooses the format by the end of the name
        writer: VideoWriter | None = None
        written = 0
        try:
            for picture in pictures:
                factor = max(1, round(_HEIGHT / picture.shape[0]))
                height, width = (size * factor + size * factor % 2 for size in picture.shape[:2])  # even, for the codec
                large = cv2.resize(picture, (width, height), interpolation=cv2.INTER_NEAREST)
                writer = writer or _open(aside, path, rate, (width, height))
                writer.write(cv2.cvtColor(large, cv2.COLOR_RGB2BGR))
                written += 1
        finally:
            if writer is not None:
                writer.release()
        with _silent_stderr():
            found = cv2.VideoCapture(str(aside), cv2.CAP_FFMPEG).get(cv2.CAP_PROP_FRAME_COUNT)
        if found != written:
            raise OSError(f"{short_path(path)}: the video is not whole; is the disk full?")


def _open(aside: Path, named: Path, rate: float, size: tuple[int, int]) -> "VideoWriter":
    import cv2

    try:
        aside.touch()  # OpenCV does not report why it cannot
    except OSError as error:
        raise OSError(f"{short_path(named)}: cannot be written: {error.strerror}") from error
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_ERROR)  # no line for each picture on a full disk
    with _silent_stderr():
        writer = cv2.VideoWriter(str(aside), cv2.CAP_FFMPEG, cv2.VideoWriter.fourcc(*"VP80"), rate, size)
    if not writer.isOpened():
        raise OSError(f"{short_path(named)}: this build of OpenCV cannot write WebM videos with VP8")
    return writer


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Silence FFmpeg: it prints past OpenCV's log that WebM has no list of four-letter codes, but finds the codec."""
    with _SILENCE:  # or a thread would keep what another has silenced, and give that back for good
        kept = os.dup(2)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            os.close(nowhere)


@contextmanager
def temporary_video(film: Film) -> Iterator[Path]:
    """Yield the path of a video that is there until the block ends, for packages that take a copy; raises OSError."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "episode.webm"
        try:
            write_video(path, film.pictures, film.info.rate)
        except OSError as error:  # without the folder's random name, so that it is printed once
            raise OSError(f"{gettempdir()}: a film cannot be written; is the disk full?") from error
        yield path


def is_webm(content: bytes) -> bool:
    """Return whether a file begins as a WebM video does: with EBML's mark, and the document's type in its header."""
    return content.startswith(b"\x1a\x45\xdf\xa3") and b"\x42\x82\x84webm" in content[:64]


def animate(film: Film) -> bytes:
    """Return a film as an endless GIF, with fewer pictures than the film if it would be too large."""
    from PIL import Image  # which comes with TensorBoard

    film = film.thinned(_GIF_PICTURES)
    first, *others = (
        Image.fromarray(picture).quantize(_GIF_COLOURS, Image.Quantize.FASTOCTREE) for picture in film.pictures
    )
    buffer = io.BytesIO()
    duration = max(_GIF_LEAST_MS, round(1000 / film.info.rate))
    first.save(buffer, "GIF", save_all=True, append_images=others, duration=duration, loop=0)
    return animate(film.halved()) if buffer.tell() > GIF_BYTES and others else buffer.getvalue()

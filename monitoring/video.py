"""Videos of episodes: their pictures at even intervals, and their encoding without a screen, for browsers.

WebM with VP8 is the one suitable format in OpenCV's wheels. They have an encoder for MPEG-4 Part 2, too, but browsers
do not play it. Their encoder for VP9 is many times slower, and their encoder for H.264 needs special hardware.
"""

import os
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path

import cv2
import numpy as np

from rainbow_iqn_apex.common.files import short_path, written_aside
from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.monitoring.film import MAX_HEIGHT, MAX_PICTURES, MAX_WIDTH

MAX_BYTES = 2_000_000  # of the video of a time lapse; half of that is usual
LARGEST = 340, 1280  # height and width [pixels] of the pictures in such a video
_HEIGHT = 240  # pixels: smaller pictures are enlarged to about this height, and browsers enlarge the rest
_BLINKING = 2  # pictures: Atari games draw some things in every other frame alone
_SILENCE = threading.Lock()  # sinks write their videos in threads of their own


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
        self._most, self._largest = most, largest
        self._steps = 0
        self._size = 0, 0
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
        """Write a video of at most MAX_BYTES, all or nothing, with fewer pictures if need be; raises OSError.

        `pictures_per_second` are those of the environment at normal speed.
        """
        write_video(path, self, pictures_per_second / self.per_step)
        while path.stat().st_size > MAX_BYTES and len(self._kept) > 1:
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
    with written_aside(path, ".webm") as aside:  # OpenCV chooses the format by the end of the name
        writer: cv2.VideoWriter | None = None
        written = 0
        try:
            for picture in pictures:
                factor = max(1, round(_HEIGHT / picture.shape[0]))
                height, width = (size * factor + size * factor % 2 for size in picture.shape[:2])  # even, for the codec
                large = cv2.resize(picture, (width, height), interpolation=cv2.INTER_NEAREST)
                if writer is None:
                    writer = _open(aside, path, rate, (width, height))
                writer.write(cv2.cvtColor(large, cv2.COLOR_RGB2BGR))
                written += 1
        finally:
            if writer is not None:
                writer.release()
        with _silent_stderr():
            found = cv2.VideoCapture(str(aside), cv2.CAP_FFMPEG).get(cv2.CAP_PROP_FRAME_COUNT)
        if found != written:
            raise OSError(f"{short_path(path)}: the video is not whole; is the disk full?")


def _open(aside: Path, named: Path, rate: float, size: tuple[int, int]) -> cv2.VideoWriter:
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
        kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, 2)
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            os.close(nowhere)

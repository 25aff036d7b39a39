"""Videos that a browser plays, written without a screen: WebM with VP8, the one suitable codec in OpenCV's wheels.

The wheels have an encoder for MPEG-4 Part 2, too, but browsers do not play it. Their encoder for VP9 is many times
slower, and their encoder for H.264 needs special hardware.
"""

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2

from rainbow_iqn_apex.common.files import written_aside
from rainbow_iqn_apex.memory.rows import Array

MAX_SECONDS = 30 * 60  # of a video; an episode may last 100 hours
_HEIGHT = 400  # pixels
_SILENCE = threading.Lock()  # sinks write their videos in threads of their own


class Video:
    """Collects pictures of equal sizes; see `write_video`."""

    def __init__(self, path: Path, named: Path, frames_per_second: float, height: int) -> None:
        self._path = path
        self._named = named  # in errors
        self._height = height
        self._rate = frames_per_second
        self._limit = round(MAX_SECONDS * frames_per_second)
        self._written = 0
        self._writer: cv2.VideoWriter | None = None

    def add(self, pictures: Iterable[Array]) -> None:
        """Append pictures [height, width, 3] uint8 RGB, until the video is full; raises OSError without an encoder."""
        for picture in pictures:
            if self._written == self._limit:
                return
            factor = max(1, round(self._height / picture.shape[0]))
            height, width = (size * factor + size * factor % 2 for size in picture.shape[:2])  # even, for the codec
            large = cv2.resize(picture, (width, height), interpolation=cv2.INTER_NEAREST)
            if self._writer is None:
                self._writer = self._open(width, height)
            self._writer.write(cv2.cvtColor(large, cv2.COLOR_RGB2BGR))
            self._written += 1

    def _open(self, width: int, height: int) -> cv2.VideoWriter:
        try:
            self._path.touch()  # OpenCV does not tell why it cannot
        except OSError as error:
            raise OSError(f"{self._named}: cannot be written: {error.strerror}") from error
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_ERROR)  # no line for each picture on a full disk
        with _silent_stderr():
            codec = cv2.VideoWriter.fourcc(*"VP80")
            writer = cv2.VideoWriter(str(self._path), cv2.CAP_FFMPEG, codec, self._rate, (width, height))
        if not writer.isOpened():
            raise OSError(f"{self._named}: this build of OpenCV cannot write WebM videos with VP8")
        return writer

    def finish(self) -> None:
        """Write what is left; raises OSError if the file does not hold all pictures, which OpenCV never reports."""
        self.release()
        with _silent_stderr():
            found = cv2.VideoCapture(str(self._path), cv2.CAP_FFMPEG).get(cv2.CAP_PROP_FRAME_COUNT)
        if found != self._written:
            raise OSError(f"{self._named}: the video is not whole; is the disk full?")

    def release(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.release()


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


@contextmanager
def write_video(path: Path, frames_per_second: float, height: int = _HEIGHT) -> Iterator[Video]:
    """Yield a video that becomes `path` (`*.webm`), all at once, when the block ends without an exception.

    Pictures that are smaller than `height` pixels are enlarged by the whole factor that comes nearest to it.
    """
    with written_aside(path, ".webm") as aside:  # OpenCV chooses the format by the end of the name
        video = Video(aside, path, frames_per_second, height)
        try:
            yield video
            video.finish()
        finally:
            video.release()

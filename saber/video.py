"""Videos that a browser plays, written without a screen: WebM with VP8, the one such codec in OpenCV's wheels.

They have an encoder for MPEG-4 Part 2, too, which browsers do not play; theirs for VP9 is many times slower, and the
one for H.264 needs special hardware.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import cv2

from memory.rows import Array, Arrays, Row
from saber.environment import Environment
from saber.files import sync_folder

MAX_SECONDS = 30 * 60  # of a video; an episode may last 100 hours
_HEIGHT = 400  # pixels; smaller pictures are enlarged by a whole factor


class Video:
    """Collects pictures of equal sizes; see `write_video`."""

    def __init__(self, path: Path, frames_per_second: float) -> None:
        self._path = path
        self._rate = frames_per_second
        self._left = round(MAX_SECONDS * frames_per_second)
        self._writer: cv2.VideoWriter | None = None

    def add(self, picture: Array) -> None:
        """Append a picture [height, width, 3] uint8 RGB, unless the video is full; raises OSError if that fails."""
        if not self._left:
            return
        self._left -= 1
        factor = max(1, round(_HEIGHT / picture.shape[0]))
        height, width = (size * factor + size * factor % 2 for size in picture.shape[:2])  # the codec's are even
        large = cv2.resize(picture, (width, height), interpolation=cv2.INTER_NEAREST)
        if self._writer is None:
            self._writer = self._open(width, height)
        self._writer.write(cv2.cvtColor(large, cv2.COLOR_RGB2BGR))

    def _open(self, width: int, height: int) -> cv2.VideoWriter:
        with _silent_stderr():
            codec = cv2.VideoWriter.fourcc(*"VP80")
            writer = cv2.VideoWriter(str(self._path), cv2.CAP_FFMPEG, codec, self._rate, (width, height))
        if not writer.isOpened():
            raise OSError(f"{self._path}: this build of OpenCV cannot write WebM videos with VP8")
        return writer

    def finish(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            self._writer.release()


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """OpenCV warns that WebM has no list of four-letter codes, past its own log, and then finds the codec."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@contextmanager
def write_video(path: Path, frames_per_second: float) -> Iterator[Video]:
    """Give a video that becomes `path` (`*.webm`), all at once, when the block ends without an exception."""
    aside = path.with_name(f".{path.stem}.{secrets.token_hex(8)}.webm")  # OpenCV goes by the end of the name
    video = Video(aside, frames_per_second)
    try:
        yield video
        video.finish()
        aside.replace(path)
    except BaseException:  # Ctrl-C too
        video.finish()
        aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


class FilmedEnvironment:
    """An environment whose first episode goes into a video; made with `record` in its settings."""

    def __init__(self, environment: Environment, video: Video) -> None:
        self._environment = environment
        self._video = video
        self._episodes = 0
        self.observation_shape = environment.observation_shape
        self.observation_dtype = environment.observation_dtype
        self.nb_actions = environment.nb_actions
        self.action_repeat = environment.action_repeat
        self.pictures_per_second = environment.pictures_per_second

    @property
    def end(self) -> str:
        """Why the episode ended."""
        return self._environment.end

    def reset(self) -> Row:
        """Begin an episode."""
        row = self._environment.reset()
        self._episodes += 1
        self._film()
        return row

    def step(self, action: int) -> Row:
        """Act once."""
        row = self._environment.step(action)
        self._film()
        return row

    def _film(self) -> None:
        if self._episodes == 1:
            for picture in self._environment.pictures():
                self._video.add(picture)

    def pictures(self) -> list[Array]:
        """The pictures of the last step."""
        return self._environment.pictures()

    def snapshot(self) -> Arrays:
        """Of the environment; the video is not in it."""
        return self._environment.snapshot()

    def restore(self, arrays: Arrays) -> None:
        """Restore the environment."""
        self._environment.restore(arrays)

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()

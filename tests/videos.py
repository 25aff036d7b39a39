"""Videos as OpenCV reads them."""

from pathlib import Path

import cv2
import pytest

from rainbow_iqn_apex.memory.rows import Array


def frames_of(path: Path, rate: float = 60) -> list[Array]:
    """The pictures [height, width, 3] BGR of a video that is shown at this rate [1/s]."""
    capture, frames = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG), []
    assert capture.get(cv2.CAP_PROP_FPS) == pytest.approx(rate, abs=0.1)
    while (read := capture.read())[0]:
        frames.append(read[1])
    capture.release()
    return frames

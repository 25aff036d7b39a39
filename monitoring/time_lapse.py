"""Collects small pictures of an episode at even intervals, however long the episode is."""

from collections.abc import Sequence
from functools import reduce

import cv2
import numpy as np

from rainbow_iqn_apex.memory.rows import Array
from rainbow_iqn_apex.monitoring.film import MAX_HEIGHT, MAX_PICTURES, MAX_WIDTH

_BLINKING = 2  # pictures: Atari games draw some things in every other frame alone


class TimeLapse:
    """Takes the pictures of each step; where something blinks in them, each is the brighter of two.

    When it is full, it drops every second picture, and takes half as many from then on: a long episode is shown faster.
    """

    def __init__(self, most: int = MAX_PICTURES, *, blinks: bool = False) -> None:
        self.stride = 1  # steps from picture to picture
        self.per_step = 1  # pictures, at most
        self._newest = _BLINKING if blinks else 1
        self._most = most
        self._steps = 0
        self._kept: list[Array] = []

    def add(self, pictures: Sequence[Array]) -> None:
        """Take the pictures [height, width, 3] uint8 RGB of a step or reset, of any size.

        There are none of a step that ended the episode before there was anything to see.
        """
        self.per_step = max(self.per_step, len(pictures))
        is_due = self._steps % self.stride == 0
        if is_due and len(self._kept) == self._most:
            self._kept = self._kept[::2]
            self.stride *= 2
            is_due = self._steps % self.stride == 0
        self._steps += 1
        if is_due and pictures:
            # The brighter of the last frames, as agents see them; a stride alone would never show what blinks.
            self._kept.append(self._small(reduce(np.maximum, pictures[-self._newest :])))

    def _small(self, picture: Array) -> Array:
        height, width = self._kept[0].shape[:2] if self._kept else small_size(*picture.shape[:2])
        return cv2.resize(picture[:, :, :3], (width, height), interpolation=cv2.INTER_AREA)

    def pictures(self) -> Array:
        """Return the pictures [pictures, height, width, 3] uint8 RGB, that of the first step first."""
        return np.stack(self._kept)


def small_size(height: int, width: int) -> tuple[int, int]:
    """Return height and width of pictures, halved until they fit into a film."""
    while height > MAX_HEIGHT or width > MAX_WIDTH:
        height, width = max(1, height // 2), max(1, width // 2)
    return height, width

"""The frame stack at one step of one whole episode."""

import numpy as np

from rainbow_iqn_apex.memory.rows import Array
from tests.ground_truth.episodes import Episode


def stack(episode: Episode, step: int, size: int, known: int | None = None) -> Array:
    """Stack the frames up to `step`, oldest first, zeros before the start; only the last `known` frames are there."""
    frames: list[Array] = []
    for age in range(size):
        there = age <= step and (known is None or age < known)
        frames.insert(0, episode.frames[step - age] if there else np.zeros_like(episode.frames[0]))
    return np.stack(frames)

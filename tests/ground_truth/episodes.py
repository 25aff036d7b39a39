"""Whole random episodes, and the rows they become. References work on the episodes, the code under test on the rows."""

from typing import NamedTuple

import numpy as np

from rainbow_iqn_apex.memory.rows import Array, StepType


class Episode(NamedTuple):
    """An episode of L actions; rewards[t] and discounts[t] arrive after action t, with frame t + 1."""

    rewards: list[float]  # L
    discounts: list[float]  # L
    frames: Array  # [L + 1, ...]


class Stream(NamedTuple):
    """Consecutive rows of one environment, and the episode and step that each row belongs to."""

    obs: Array  # [rows, ...]
    step_type: Array  # [rows] uint8
    reward: Array  # [rows] NaN on FIRST, where nothing may read it
    discount: Array  # [rows] NaN on FIRST
    places: list[tuple[Episode, int]]


def random_episode(rng: np.random.Generator, frame: tuple[int, ...] = ()) -> Episode:
    """Draw an episode of 1 to 9 actions that ends truly or by truncation; no frame holds a 0."""
    length = int(rng.integers(1, 10))
    discounts = [float(d) for d in rng.uniform(0.5, 1, length)]
    discounts[-1] = float(rng.integers(2))
    frames = rng.integers(1, 256, (length + 1, *frame)).astype(np.uint8)
    return Episode([float(r) for r in rng.normal(size=length)], discounts, frames)


def random_stream(rng: np.random.Generator, rows: int, frame: tuple[int, ...] = ()) -> Stream:
    """Draw episodes until they fill a number of rows."""
    obs: list[Array] = []
    step_type: list[int] = []
    reward: list[float] = []
    discount: list[float] = []
    places: list[tuple[Episode, int]] = []
    while len(step_type) < rows:
        episode = random_episode(rng, frame)
        length = len(episode.rewards)
        obs.extend(episode.frames)
        step_type.extend([StepType.FIRST, *[StepType.MID] * (length - 1), StepType.LAST])
        reward.extend([np.nan, *episode.rewards])
        discount.extend([np.nan, *episode.discounts])
        places.extend((episode, step) for step in range(length + 1))
    return Stream(
        np.stack(obs[:rows]),
        np.array(step_type[:rows], np.uint8),
        np.array(reward[:rows]),
        np.array(discount[:rows]),
        places[:rows],
    )

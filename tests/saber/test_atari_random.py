"""Seeds and sticky actions."""

import struct
from collections import Counter

import pytest

from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.memory.rows import Row
from rainbow_iqn_apex.saber.atari import AtariEnvironment
from tests.saber.reference import make_atari, play, random_actions, same

RIGHT, LEFT, PADDLE_STEP = 3, 4, -23_000  # of Breakout; what ALE adds to the paddle's position in a frame of RIGHT


def rows_of(seed: int, steps: int, sticky: float = 0.25) -> list[Row]:
    environment = make_environment(EnvironmentSettings(game="breakout", proba_sticky_actions=sticky), seed)
    environment.reset()
    return play(environment, random_actions(steps))


def test_stickiness_is_all_that_is_random() -> None:
    assert all(map(same, rows_of(1, 300, sticky=0), rows_of(2, 300, sticky=0)))


@pytest.mark.parametrize("seed", [-1, 2**31 + 5, 2**63])
def test_any_integer_is_a_seed(seed: int) -> None:
    assert same(rows_of(seed, 21)[20], rows_of(seed, 21)[20])


def paddle(environment: AtariEnvironment) -> int:
    place: int = struct.unpack_from("<i", environment._ale.cloneState(include_rng=False).serialize())[0]
    return place


def frames_kept(steps: int) -> Counter[float]:
    """Turn the paddle round at every step of 4 frames; how many frames did each step still go the old way?"""
    environment = make_atari(EnvironmentSettings(game="breakout"), 3)
    kept = Counter[float]()
    for step in range(steps):
        if step % 25 == 0:
            environment.reset()  # far from both walls
            environment.step(LEFT)
        before = paddle(environment)
        environment.step((RIGHT, LEFT)[step % 25 % 2])
        forward = (paddle(environment) - before) // PADDLE_STEP * (1, -1)[step % 25 % 2]
        kept[(4 - forward) / 2] += 1
    return kept


@pytest.mark.slow
def test_stickiness_is_drawn_at_every_frame() -> None:
    # k frames of the old action have probability p^k (1 - p), and p^4 for all four. Drawn once per
    # step, they would be 0 or 4 frames, with 1 - p and p.
    p, steps = 0.25, 3000
    kept = frames_kept(steps)
    for k in range(4):
        expected = p**k * (1 - p)
        error = (expected * (1 - expected) / steps) ** 0.5
        # 4 standard errors; a step in 256 begins with the action of the step before, which shifts this a little
        assert abs(kept[k] / steps - expected) < 4 * error + 0.004, (k, kept)

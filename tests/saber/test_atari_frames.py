"""Observations, against a plain emulator with the same seed that is played frame by frame."""

import numpy as np
import pytest

from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.memory.rows import StepType
from tests.saber.reference import Reference, end_after, make_atari, observation, random_actions, resized


# space_invaders blinks: with the last frame alone, or with the maximum of other frames, most pixels of shots differ.
# klax has a screen of 250 lines and short episodes, ms_pacman loses lives.
@pytest.mark.parametrize(("game", "repeat"), [("space_invaders", 4), ("ms_pacman", 4), ("klax", 3), ("pong", 1)])
def test_every_row_equals_the_slow_reference(game: str, repeat: int) -> None:
    environment = make_environment(EnvironmentSettings(game=game, action_repeat=repeat), 11)
    reference = Reference(game, 11)
    row, expected = environment.reset(), reference.reset()
    assert np.array_equal(row.obs, expected)
    lives: set[int] = set()
    episodes = last_alone = 0
    for action in random_actions(600):
        row, played = environment.step(action), reference.step(action, repeat)
        assert np.array_equal(row.obs, observation(played.frames, repeat))
        assert row.reward == sum(played.rewards)  # raw
        assert (row.step_type == StepType.LAST) == played.over  # a lost life ends nothing
        assert row.discount == (0 if played.over else 1)
        last_alone += np.array_equal(row.obs, resized(played.frames[-1]))
        lives.add(reference.ale.lives())
        if played.over:
            episodes += 1
            assert np.array_equal(environment.reset().obs, reference.reset())
    assert (episodes > 0) == (game != "pong")
    assert len(lives) > 2 or game in ("pong", "klax")
    assert last_alone < 300 or game != "space_invaders"


# The second step is cut: with n frames reached, frame 3 is seen from n = 3 on and frame 4 at n = 4 only. A program that
# kept the frame before, or left its buffer from the last step, would not be black at n = 1 and n = 2.
@pytest.mark.parametrize("reached", [1, 2, 3, 4])
def test_frames_that_are_not_reached_are_black(monkeypatch: pytest.MonkeyPatch, reached: int) -> None:
    end_after(monkeypatch, 4 + reached)
    environment = make_environment(EnvironmentSettings(game="space_invaders"), 5)
    reference = Reference("space_invaders", 5)
    environment.reset()
    reference.reset()
    frames = reference.step(3).frames
    assert np.array_equal(environment.step(3).obs, observation(frames))
    frames = reference.step(3, reached).frames
    row = environment.step(3)
    expected = [np.zeros((84, 84)), np.zeros((84, 84)), resized(frames[-1]), observation(frames)][reached - 1]
    assert np.array_equal(row.obs, expected)
    assert (row.step_type, row.discount, environment.end) == (StepType.LAST, 0, "game_over")


def test_a_reset_plays_no_frame() -> None:
    environment = make_atari(EnvironmentSettings(game="breakout"), 0)
    for _ in range(2):
        row = environment.reset()
        assert (row.step_type, row.reward, row.discount) == (StepType.FIRST, 0, 1)
        assert environment._ale.getEpisodeFrameNumber() == 0  # no-ops or a fire would count
        for _ in range(60):
            environment.step(0)
        lives = environment._ale.lives()
        assert lives == 5  # nobody served the ball

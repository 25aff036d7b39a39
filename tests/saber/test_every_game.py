"""SABER's rules in every game that has a published score: what an agent sees, and may do."""

import numpy as np
import pytest

from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.memory.environment_spec import Discrete
from rainbow_iqn_apex.memory.rows import StepType
from rainbow_iqn_apex.saber.games import check_game
from rainbow_iqn_apex.saber.results.task import read_scores
from tests.saber.reference import Reference, bilinear, make_atari, observation, random_actions

GAMES = list(read_scores())
# The quick tier has one in sixteen: the rules are the same code for all.
TIERED = [pytest.param(game, marks=[pytest.mark.slow] * bool(i % 16)) for i, game in enumerate(GAMES)]


def test_the_games_of_the_table_can_be_played() -> None:
    assert [check_game(game) for game in GAMES] == [None] * 62


@pytest.mark.parametrize("game", TIERED)
def test_eighteen_actions_one_shape_and_every_pixel(game: str) -> None:
    environment, reference = make_atari(EnvironmentSettings(game=game), 5), Reference(game, 5)
    assert (environment.spec.action, environment.spec.observation.shape) == (Discrete(18), (84, 84))
    assert (environment.spec.observation.dtype, environment.action_repeat) == ("uint8", 4)
    row, expected = environment.reset(), reference.reset()
    assert np.abs(bilinear(reference.ale.getScreenGrayscale()) - row.obs).max() <= 1
    for action in [*range(18), *random_actions(60)]:
        assert row.obs.shape == (84, 84) and row.obs.dtype == np.uint8
        assert np.array_equal(row.obs, expected)
        if row.step_type == StepType.LAST:
            row, expected = environment.reset(), reference.reset()
        row, played = environment.step(action), reference.step(action)
        expected = observation(played.frames)
        assert row.reward == sum(played.rewards)
        assert (row.step_type == StepType.LAST) == played.over
    for wrong in (-1, 18):
        with pytest.raises(ValueError, match=r"no such action|reset first"):
            environment.step(wrong)

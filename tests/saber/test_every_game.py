"""SABER's rules in every game that has a published score: what an agent sees, may do, and cannot foresee."""

from typing import Any

import numpy as np
import pytest

from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.memory.environment_spec import Discrete
from rainbow_iqn_apex.memory.rows import StepType
from rainbow_iqn_apex.saber.atari import AtariEnvironment
from rainbow_iqn_apex.saber.games import check_game
from rainbow_iqn_apex.saber.results.atari_scores import read_scores
from tests.saber.reference import Reference, bilinear, make_atari, observation, play, random_actions, same

GAMES = list(read_scores())
# The quick tier has one in eight: the rules are the same code for all.
every = pytest.mark.parametrize(
    "game", [pytest.param(g, marks=[pytest.mark.slow] * bool(i % 8)) for i, g in enumerate(GAMES)]
)


def make(game: str, seed: int, **more: Any) -> AtariEnvironment:
    return make_atari(EnvironmentSettings(game=game, **more), seed)


def test_the_games_of_the_table_can_be_played() -> None:
    assert [check_game(game) for game in GAMES] == [None] * 62


@every
def test_eighteen_actions_one_shape_and_every_pixel(game: str) -> None:
    environment, reference = make(game, 5), Reference(game, 5)
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


@every
def test_the_seed_decides_everything(game: str) -> None:
    one, again = (make(game, 1) for _ in range(2))
    assert same(one.reset(), again.reset())
    actions = random_actions(100)
    assert all(map(same, play(one, actions), play(again, actions)))
    assert one._ale.cloneState(include_rng=True).serialize() == again._ale.cloneState(include_rng=True).serialize()


def frames_kept(game: str, count: int) -> tuple[int, int]:
    """(frames in which the action before was repeated, frames in which this can be told): `count` of the latter.

    Before each frame, two actions and more are tried in an emulator without stickiness that is brought to the same
    state. Where they lead to different memories, the environment's tells which of them it took.
    """
    environment, twin = make(game, 7, action_repeat=1), Reference(game, 0, sticky=0).ale
    twin.reset_game()
    environment.reset()
    random = np.random.default_rng(1)
    may_be_last, kept, told = [0], 0, 0  # actions of which one was the last
    for _ in range(30_000):  # most games need 300; some play music for ten seconds, and Q*bert listens between hops
        if environment.end:
            environment.reset()
            may_be_last = [0]
        new = int(random.choice([action for action in range(18) if action not in may_be_last]))
        state, memories = environment._ale.cloneState(), {}
        for action in [*may_be_last, new]:
            twin.restoreState(state)
            twin.act(action)
            memories[action] = twin.getRAM().tobytes()
        environment.step(new)
        memory = environment._ale.getRAM().tobytes()
        fits = [action for action, other in memories.items() if other == memory]
        if fits and (fits == [new] or new not in fits):
            told, kept = told + 1, kept + (new not in fits)
            if told == count:
                break
        may_be_last = (fits or [*may_be_last, new])[-3:]
    return kept, told


@every
def test_one_frame_in_four_repeats_the_action_before(game: str) -> None:
    # Without stickiness 0 of them; if it were drawn once per agent step only, a test of Breakout fails.
    kept, told = frames_kept(game, 80)
    assert told == 80
    assert abs(kept / told - 0.25) < 4.5 * (0.25 * 0.75 / told) ** 0.5

"""Rewards, and how an episode ends. The emulator says injected rewards where none would come by itself."""

import pytest

from rainbow_iqn_apex.environments.interface import Environment, EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.memory.rows import StepType
from rainbow_iqn_apex.saber.atari import AtariEnvironment, unroll
from tests.saber.reference import end_after, random_actions, say_rewards


def last_of(environment: Environment) -> tuple[int, float, str]:
    """Agent steps of the episode from here, discount and reason of its end."""
    for steps in range(1, 10**6):
        row = environment.step(0)
        if row.step_type == StepType.LAST:
            return steps, row.discount, environment.end
    raise AssertionError


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        (-999_950, 50),  # at 10^6
        (-99_999_000, 1000),  # at 10^8: Atlantis
        (-1_000_000, 0),
        (-900_001, 99_999),
        (-900_000, -900_000),  # not below: `<=` would make 100 000 of it
        (-240, -240),
        (0, 0),
        (999_950, 999_950),  # only negative rewards roll over
    ],
)
def test_roll_over(said: int, meant: int) -> None:
    assert unroll(said) == meant


def test_every_frame_is_corrected_before_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    # Corrected after the sum, the first step would be -999 650 + 10^6 = 350, which is the same; the second, with two
    # roll-overs, would not: -1 999 800 would become 8 000 200. The third holds a counter of 10^8. The last is a sum
    # that looks like a roll-over, and is none.
    frames = [100, -999_950, 0, 200, -999_950, -999_850, 0, 0, -99_999_000, 7, 0, 0, -300, 0, 0, 100]
    frames += [-500_000, -500_000, 0, 0]
    say_rewards(monkeypatch, frames)
    environment = make_environment(EnvironmentSettings(), 0)
    environment.reset()
    assert [environment.step(0).reward for _ in range(6)] == [350, 200, 1007, -200, -1_000_000, 0]


def test_defenders_first_rewards_are_not_multiplied() -> None:
    environment = make_environment(EnvironmentSettings(game="defender"), 1)
    environment.reset()
    rewards = [environment.step(action).reward for action in random_actions(200, seed=1)]
    assert [reward for reward in rewards if reward] == [150, 150, 100, 200, 250]


def test_stuck_after_more_than_five_minutes_without_a_reward(monkeypatch: pytest.MonkeyPatch) -> None:
    # 300 steps without a reward may be, the 301st ends the episode; `>=` for `>` ends it at the 300th. A negative
    # reward is a reward: without the counter's return to 0 the episode ends after 301 steps.
    assert AtariEnvironment.max_stuck_seconds == 300
    monkeypatch.setattr(AtariEnvironment, "max_stuck_seconds", 20)
    say_rewards(monkeypatch, [0] * 4 * 299 + [0, 0, -1, 0])
    environment = make_environment(EnvironmentSettings(), 0)
    environment.reset()
    assert last_of(environment) == (300 + 301, 0.0, "stuck")
    environment.reset()  # counts from 0 again, and no reward is left to be said
    assert last_of(environment) == (301, 0.0, "stuck")


@pytest.mark.parametrize(("repeat", "steps"), [(4, 76), (3, 101), (1, 301)])
def test_limits_are_game_time(monkeypatch: pytest.MonkeyPatch, repeat: int, steps: int) -> None:
    monkeypatch.setattr(AtariEnvironment, "max_stuck_seconds", 5)
    say_rewards(monkeypatch)
    environment = make_environment(EnvironmentSettings(action_repeat=repeat), 0)
    environment.reset()
    assert last_of(environment) == (steps, 0.0, "stuck")


@pytest.mark.parametrize(
    ("saber_mode", "limit", "seconds", "discount"),
    [(True, "max_saber_seconds", 100 * 60 * 60, 0.0), (False, "max_seconds", 30 * 60, 1.0)],
)
def test_time_is_a_true_end_under_saber_and_else_a_truncation_before_which_nothing_is_stuck(
    monkeypatch: pytest.MonkeyPatch, saber_mode: bool, limit: str, seconds: int, discount: float
) -> None:
    assert getattr(AtariEnvironment, limit) == seconds
    monkeypatch.setattr(AtariEnvironment, limit, 10)
    monkeypatch.setattr(AtariEnvironment, "max_stuck_seconds", 20 if saber_mode else 5)
    say_rewards(monkeypatch)
    environment = make_environment(EnvironmentSettings(saber_mode=saber_mode), 0)
    for _ in range(2):
        environment.reset()
        assert last_of(environment) == (150, discount, "time_limit")


@pytest.mark.parametrize("saber_mode", [True, False])
def test_the_games_own_end_wins_over_the_clock(monkeypatch: pytest.MonkeyPatch, saber_mode: bool) -> None:
    monkeypatch.setattr(AtariEnvironment, "max_saber_seconds", 1)
    monkeypatch.setattr(AtariEnvironment, "max_seconds", 1)
    end_after(monkeypatch, 60)
    environment = make_environment(EnvironmentSettings(saber_mode=saber_mode), 0)
    environment.reset()
    assert last_of(environment) == (15, 0.0, "game_over")

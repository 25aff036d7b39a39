"""Procgen: what is refused, which levels are played, and how its episodes end."""

from typing import Any

import numpy as np
import pytest

from rainbow_iqn_apex.environments.extras import missing
from rainbow_iqn_apex.environments.interface import Environment, EnvironmentSettings
from rainbow_iqn_apex.environments.procgen.environment import Engine
from rainbow_iqn_apex.environments.procgen.options import ProcgenOptions
from rainbow_iqn_apex.environments.registry import make_environment
from tests.environments.episodes import play_out

NOTHING = 4  # an action
needs_procgen = pytest.mark.skipif(bool(missing("procgen")), reason=missing("procgen"))


def make(game: str, seed: int = 1, own: ProcgenOptions | None = None, **settings: Any) -> Environment:
    return make_environment(EnvironmentSettings(env=f"procgen:{game}", own=own or ProcgenOptions(), **settings), seed)


@pytest.mark.parametrize(
    ("game", "mode", "says"),
    [
        ("coinrun", "memory", "--procgen-mode: coinrun has no levels of mode memory, which caveflyer"),
        ("bigfish", "exploration", "--procgen-mode: bigfish has no levels of mode exploration"),
    ],
)
def test_a_mode_that_a_game_does_not_have_is_refused(game: str, mode: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make(game, own=ProcgenOptions(procgen_mode=mode))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"procgen_num_levels": 2, "procgen_start_level": 2**31 - 2}, "reach beyond the last level, 2147483647"),
        ({"procgen_mode": "exploration", "procgen_num_levels": 5}, "exploration plays a single level"),
    ],
)
def test_levels_that_there_are_not_are_refused(options: dict[str, Any], says: str) -> None:
    (error,) = ProcgenOptions(**options).errors()
    assert says in error


@needs_procgen
def test_the_time_limit_is_no_death() -> None:
    # Mutation: leave the limit to the engine, which shows the next level's picture with it.
    environment = make("maze", own=ProcgenOptions(procgen_mode="easy"))
    first, *rows = play_out(environment, lambda _: NOTHING)
    assert (len(rows), environment.end, rows[-1].discount) == (500, "time_limit", 1)
    assert np.array_equal(rows[-1].obs, first.obs), "whoever does nothing in a maze sees the same all the time"
    assert not np.array_equal(environment.reset().obs, first.obs)


@needs_procgen
@pytest.mark.parametrize("game", ["starpilot", "coinrun"])
def test_taking_the_limit_away_changes_nothing_else(game: str, monkeypatch: pytest.MonkeyPatch) -> None:
    levels = {"num_levels": 0, "start_level": 0, "distribution_mode": 1}
    ours = Engine(game, 3, levels, draw=False)
    monkeypatch.setattr(Engine, "_take_limit", lambda _: 0)
    plain = Engine(game, 3, levels, draw=False)
    random = np.random.default_rng(0)
    for action in random.integers(0, 15, 600).tolist():
        one, other = ours.act(action), plain.act(action)
        assert np.array_equal(one.picture, other.picture) and one[1:] == other[1:]


@needs_procgen
def test_the_last_picture_of_a_death_is_its_own() -> None:
    environment = make("starpilot")
    random = np.random.default_rng(0)
    *_, before, last = play_out(environment, lambda _: int(random.integers(15)))
    assert (environment.end, last.discount) == ("game_over", 0)
    assert np.array_equal(last.obs, before.obs)


@needs_procgen
@pytest.mark.parametrize(
    ("options", "count"),
    [({"procgen_num_levels": 1}, 1), ({"procgen_num_levels": 3}, 3), ({"procgen_mode": "exploration"}, 1), ({}, 8)],
)
def test_as_many_levels_are_played_as_asked_for(options: dict[str, Any], count: int) -> None:
    # Mutation: hand the engine no number of levels.
    environment = make("maze", own=ProcgenOptions(**options))
    assert len({environment.reset().obs.tobytes() for _ in range(8)}) <= count
    assert count < 8 or len({environment.reset().obs.tobytes() for _ in range(8)}) == 8


@needs_procgen
def test_levels_begin_where_asked_for() -> None:
    first = make("maze", own=ProcgenOptions(procgen_num_levels=1)).reset().obs
    other = make("maze", own=ProcgenOptions(procgen_num_levels=1, procgen_start_level=7)).reset().obs
    assert not np.array_equal(first, other)


@needs_procgen
def test_a_state_of_another_game_is_refused() -> None:
    # Mutation: hand it to the library, which then ends the process.
    foreign = [make("maze"), make("coinrun", own=ProcgenOptions(procgen_mode="easy"))]
    for other in foreign:
        other.reset()
        with pytest.raises(ValueError, match="a state that is none of coinrun with these options"):
            make("coinrun").restore(other.snapshot())


@needs_procgen
def test_films_are_larger_and_windows_are_none() -> None:
    environment = make("coinrun", record=True)
    environment.reset()
    (picture,) = environment.pictures()
    assert picture.shape == (512, 512, 3) and picture.std() > 10
    with pytest.raises(RuntimeError, match="cannot render: Procgen has no window"):
        make("coinrun", render=True)

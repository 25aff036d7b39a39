"""Crafter: what is refused, how its episodes end, what a film changes, and the order of its creatures."""

from typing import Any

import numpy as np
import pytest

from rainbow_iqn_apex.environments.extras import missing
from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from tests.environments.episodes import play_out

ENV = "crafter:CrafterReward-v1"
NOTHING = 0  # an action
pytestmark = pytest.mark.skipif(bool(missing("crafter")), reason=missing("crafter"))


def make(**settings: Any) -> Any:
    return make_environment(EnvironmentSettings(env=ENV, **settings), 1)


@pytest.mark.slow
def test_a_death_ends_an_episode_and_the_time_limit_cuts_it_off() -> None:
    # Mutation: take the engine's end for a death.
    environment = make()
    for limit, end in ((10_000, "game_over"), (20, "time_limit")):
        environment._engine._length = limit
        rows = play_out(environment, lambda _: NOTHING)
        assert environment.end == end
        assert rows[-1].discount == (end == "time_limit")
    assert len(rows) == 1 + 20


@pytest.mark.slow
def test_a_film_changes_nothing() -> None:
    # Mutation: leave the random numbers where the picture's noise has brought them.
    plain, filmed = make(), make(record=True)
    assert np.array_equal(plain.reset().obs, filmed.reset().obs)
    assert plain.pictures() == []
    for _ in range(160):
        (picture,) = filmed.pictures()
        assert np.array_equal(plain.step(NOTHING).obs, filmed.step(NOTHING).obs)
        if plain.end:
            plain.reset(), filmed.reset()
    assert picture.shape == (540, 540, 3) and picture.std() > 10
    assert filmed._engine._world.daylight < 0.5, "nights have noise"
    with pytest.raises(RuntimeError, match="cannot render: Crafter has no window"):
        make(render=True)


def test_creatures_are_drawn_in_the_order_of_their_birth(monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: hand on the engine's set, whose order is that of addresses.
    import crafter

    environment, orders = make(), []
    environment.begin(3)
    engine = environment._engine
    monkeypatch.setattr(crafter.Env, "_balance_chunk", lambda _, chunk, objs: orders.append((chunk, objs)))
    for chunk, objs in engine._world.chunks.items():
        engine._balance_chunk(chunk, objs)
    born = engine._world.objects
    for chunk, found in orders:
        assert {*found} == engine._world.chunks[chunk]
        places = [next(place for place, each in enumerate(born) if each is one) for one in found]
        assert places == sorted(places)
    assert max(len(found) for _, found in orders) > 3

"""NLE: its tasks, what is seen, how its episodes end, and what NetHack leaves behind in the process."""

import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from rainbow_iqn_apex.environments.extras import missing
from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.environments.nle import environment as nle_environment
from rainbow_iqn_apex.environments.nle.environment import GLYPHS, LIMIT, TASKS
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.environments.words import numbered, text_field
from rainbow_iqn_apex.memory.environment_spec import unpack
from rainbow_iqn_apex.memory.rows import StepType
from tests.environments.episodes import play_out
from tests.saber.reference import same

SEARCH = 22  # an action, which lets time pass
pytestmark = pytest.mark.skipif(bool(missing("nle")), reason=missing("nle"))


def make(task: str = "NetHackScore-v0", seed: int = 1, **settings: Any) -> Any:
    return make_environment(EnvironmentSettings(env=f"nle:{task}", **settings), seed)


def test_every_task_is_played_whose_seeds_may_be_set() -> None:
    import nle  # noqa: F401 - it registers its tasks

    assert {id_ for id_ in gymnasium.registry if id_.startswith("NetHack")} == {
        *TASKS, "NetHack-v0", "NetHackChallenge-v0"
    }  # fmt: skip
    for task in TASKS:
        environment = make(task)
        environment.reset()
        assert environment.step(SEARCH).step_type == StepType.MID
        environment.close()


def test_a_map_of_glyphs_numbers_and_the_message_are_seen() -> None:
    # Mutations: take another of the engine's arrays; leave numbers of thousands as they are; mistake their order.
    from nle import nethack

    environment = make()
    row = environment.reset()
    for action in (1, 2, SEARCH):
        row = environment.step(action)
    shown, numbers, message = unpack(environment.spec.observation, row.obs)
    seen = environment._task.last_observation
    glyphs, blstats, text = seen[:3]
    assert np.array_equal(shown, glyphs) and shown.max() <= nethack.MAX_GLYPH == GLYPHS
    assert environment.spec.observation.inner[0].vocabulary == GLYPHS + 1
    assert np.sign(numbers) * np.expm1(np.abs(numbers)) == pytest.approx(blstats, rel=1e-5)
    for name, place in (("x", "X"), ("hit_points", "HP"), ("depth", "DEPTH"), ("score", "SCORE"), ("time", "TIME")):
        assert environment.spec.part(name).start == getattr(nethack, f"NLE_BL_{place}")
    assert environment.spec.part("alignment").stop == len(blstats)
    assert np.array_equal(message, numbered(bytes(text).decode("ascii").strip("\0"), text_field(16)))
    assert unpack(environment.spec.observation, make().reset().obs)[2].any(), "the game begins with a greeting"


def test_the_limit_cuts_a_game_off_which_is_still_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    # Mutation: leave the limit to the engine, which quits the game and shows what is left of it.
    whole, cut = make(), make()
    assert same(whole.reset(), cut.reset())
    monkeypatch.setattr(nle_environment, "LIMIT", 30)
    rows = [cut.step(SEARCH) for _ in range(30)]
    monkeypatch.setattr(nle_environment, "LIMIT", LIMIT)
    assert (cut.end, rows[-1].step_type, rows[-1].discount) == ("time_limit", StepType.LAST, 1)
    for row in rows[:-1]:
        assert same(whole.step(SEARCH), row)
    assert np.array_equal(whole.step(SEARCH).obs, rows[-1].obs) and not whole.end


def test_a_death_is_an_end_after_which_signals_are_what_they_were() -> None:
    # Mutation: leave SIGHUP as NetHack does, ignored.
    def ignored() -> int:
        (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("SigIgn"))
        return int(line.split()[1], 16)

    before, environment, random = ignored(), make(), np.random.default_rng(0)
    assert not before >> (signal.SIGHUP - 1) & 1
    *_, last = play_out(environment, lambda _: int(random.integers(23)))
    assert (environment.end, last.discount) == ("game_over", 0)
    assert ignored() == before


def test_a_film_shows_the_map_and_changes_nothing() -> None:
    plain, filmed = make(), make(record=True)
    assert same(plain.reset(), filmed.reset())
    for _ in range(20):
        (picture,) = filmed.pictures()
        assert picture.shape == (336, 1264, 3) and picture.std() > 1
        assert same(plain.step(SEARCH), filmed.step(SEARCH))
    assert plain.pictures() == []
    with pytest.raises(RuntimeError, match="cannot render: NLE has no window"):
        make(render=True)

"""VizDoom: its names, what is seen and done, where episodes end, and the engine, which is a process of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.common.signals import STOP_SIGNALS
from rainbow_iqn_apex.environments.extras import missing
from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.environments.vizdoom.environment import SCENARIOS
from rainbow_iqn_apex.environments.vizdoom.options import VizdoomOptions
from rainbow_iqn_apex.memory.environment_spec import Discrete, Field, MultiDiscrete, packed, unpack
from rainbow_iqn_apex.memory.rows import StepType
from tests.deadline import wait_until
from tests.environments.episodes import play_out
from tests.saber.reference import same

PICTURE = Field((3, 72, 128), "uint8")
NEED = {"doom": "Doom's data, which is sold", "doom2": "Doom's data, which is sold", "oblige": "a map made before"}
NEED |= dict.fromkeys(("cig", "multi", "multi_duel"), "other players") | {"basic_audio": "sound"}
NEED |= {
    "basic_notifications": "texts",
    "learning": "a map made before",
    "freedoom1": "the name of a map: it has no map01",
}

pytestmark = pytest.mark.skipif(bool(missing("vizdoom")), reason=missing("vizdoom"))


@contextmanager
def opened(name: str, *, buttons: str = "one", **settings: Any) -> Iterator[Any]:
    own = VizdoomOptions(vizdoom_buttons=buttons)
    with closing(make_environment(EnvironmentSettings(env=f"vizdoom:{name}", own=own, **settings), 3)) as environment:
        yield environment


@pytest.mark.slow
def test_every_scenario_is_played_or_needs_what_there_is_not() -> None:
    import vizdoom

    assert {*SCENARIOS, *NEED} == {config.removesuffix(".cfg") for config in vizdoom.configs}
    assert not NEED.keys() & {*SCENARIOS}
    for name in SCENARIOS:
        with opened(name) as environment:
            row = environment.reset()
            assert unpack(environment.spec.observation, row.obs)[0].shape == PICTURE.shape
            assert environment.step(1).step_type == StepType.MID


def test_a_picture_halves_the_engine_s_and_variables_are_hundredths() -> None:
    # Mutation: take every other pixel; or leave the variables as they are.
    with opened("defend_the_center") as environment:
        row = environment.reset()
        environment.step(1)
        row = environment.step(3)
        state = environment._game.get_state()
        assert environment.spec.observation == packed(PICTURE, Field((2,), "float32"))
        assert [part.name for part in environment.spec.parts] == ["ammo2", "health"]
        picture, variables = unpack(environment.spec.observation, row.obs)
        fours = state.screen_buffer.astype(int).reshape(72, 2, 128, 2, 3).sum((1, 3))  # [72, 128, 3]
        assert np.abs(picture.transpose(1, 2, 0) - fours / 4).max() <= 0.5
        assert variables == pytest.approx(state.game_variables / 100)
        assert variables[1] == 1


def test_buttons_are_one_choice_or_many() -> None:
    with opened("basic") as one, opened("basic", buttons="any") as many:
        assert (one.spec.action, many.spec.action) == (Discrete(4), MultiDiscrete((2, 2, 2)))
        assert same(one.reset(), many.reset())
        for choice, pressed in ((0, [0, 0, 0]), (1, [1, 0, 0]), (2, [0, 1, 0]), (3, [0, 0, 1])):
            assert same(one.step(choice), many.step(np.array(pressed)))
        one.reset(), many.reset()
        assert not same(one.step(1), many.step(np.array([1, 0, 1])))
        for environment, wrong in ((one, -1), (many, np.array([0, 2, 0]))):  # -1 would press the last button
            with pytest.raises(ValueError, match="no such action"):
                environment.step(wrong)


@pytest.mark.parametrize("repeat", [4, 7])
def test_a_time_limit_cuts_an_episode_off_and_shows_its_last_tic(repeat: int) -> None:
    # Mutations: hold the last action for all its tics; leave the limit to the engine, which shows nothing then.
    with opened("basic", action_repeat=repeat) as environment:
        rows = play_out(environment, lambda _: 0)
        assert environment.end == "time_limit"
        assert (rows[-1].step_type, rows[-1].discount) == (StepType.LAST, 1)
        assert len(rows) - 1 == -(-300 // repeat)
        assert sum(row.reward for row in rows) == -300  # a tic costs 1
        shown, _ = unpack(environment.spec.observation, rows[-1].obs)
        assert shown.any()
        assert not environment._game.is_episode_finished()


def test_a_true_end_is_bootstrapped_from_nothing() -> None:
    with opened("health_gathering_supreme") as environment:  # its floor kills
        rows = play_out(environment, lambda _: 0)
        assert environment.end == "game_over"
        assert (rows[-1].discount, rows[-2].discount) == (0, 1)
        assert rows[-1].reward < -90
        assert np.array_equal(rows[-1].obs, rows[-2].obs)


def test_a_film_shows_every_tic_and_changes_nothing() -> None:
    # Mutation: draw the last tic of a step alone.
    with opened("deadly_corridor") as plain, opened("deadly_corridor", record=True) as recorded:
        assert same(plain.reset(), recorded.reset())
        assert len(recorded.pictures()) == 1
        for step in range(30):
            row = plain.step(step % 8)
            assert same(row, recorded.step(step % 8))
            if row.step_type == StepType.LAST:
                break
            assert [picture.shape for picture in recorded.pictures()] == [(144, 256, 3)] * 4
        assert plain.pictures() == []
        assert plain.pictures_per_second == 35


def test_a_death_in_the_first_tic_of_a_step_shows_what_was_seen_last() -> None:
    # Mutation: leave the pictures of such a step empty.
    with opened("take_cover", record=True, action_repeat=1) as environment:
        rows = [environment.reset()]
        while rows[-1].step_type != StepType.LAST:
            rows.append(environment.step(0))
            assert len(environment.pictures()) == 1
        assert environment.end == "game_over"


def engines(pid: int | None = None) -> list[psutil.Process]:
    return [child for child in psutil.Process(pid).children(recursive=True) if child.name() == "vizdoom"]


def test_an_engine_that_has_ended_is_one_line() -> None:
    with opened("basic") as environment:
        environment.reset()
        [engine] = engines()
        engine.kill()
        with pytest.raises(RunError, match=r"^vizdoom:basic: the engine failed at step 1 of episode 1 \(.*\); start"):
            environment.step(0)


def test_an_engine_outlives_requests_to_stop_and_ends_when_its_environment_closes() -> None:
    # Mutation: let the engine have a signal, as a terminal or systemd sends it to actor and engine.
    with opened("basic") as environment:
        environment.reset()
        [engine] = engines()
        for number in STOP_SIGNALS:
            engine.send_signal(number)
        for _ in range(75):
            environment.step(0)
    wait_until(lambda: not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE, "the engine to end", 30)


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="there is no setpriv")
def test_nothing_outlives_an_actor_that_is_killed(tmp_path: Path) -> None:
    # Mutations: start the engine without setpriv; remove its folder, or the names of its memory, when it closes.
    code = (
        "from rainbow_iqn_apex.environments.interface import EnvironmentSettings\n"
        "from rainbow_iqn_apex.environments.registry import make_environment\n"
        "environment = make_environment(EnvironmentSettings(env='vizdoom:basic'), 0)\n"
        "print('up', flush=True)\ninput()"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, env=environment) as actor:
        assert actor.stdout is not None
        assert actor.stdout.readline() == b"up\n"
        [engine] = engines(actor.pid)
        words = engine.cmdline()
        actor.kill()
    wait_until(lambda: not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE, "the engine to end", 30)
    assert list(tmp_path.iterdir()) == []
    assert list(Path("/dev/shm").glob(f"*{words[words.index('+viz_instance_id') + 1]}*")) == []

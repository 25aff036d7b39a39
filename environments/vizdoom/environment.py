"""Scenarios of VizDoom (Kempka et al. 2016, arXiv 1605.02097): --env vizdoom:my_way_home.

An observation is a picture [3, 72, 128] in colour, half as wide and as high as what the engine draws, each pixel the
mean of four. Beside it stand the scenario's game variables in hundredths, if it has any: a health of 100 is 1. An
action is held for `action_repeat` of the engine's 35 tics a second. Scenario, reward and time limit are VizDoom's own.
What a time limit ends is cut off: its last observation is that of the limit's tic. At a true end the engine shows
nothing, and the last observation stands again.
"""

import os
import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.common.signals import STOP_SIGNALS, blocked
from rainbow_iqn_apex.common.text import nearest, one_line, suggestion
from rainbow_iqn_apex.environments.display import check_display
from rainbow_iqn_apex.environments.extras import need
from rainbow_iqn_apex.environments.interface import EnvironmentSettings, first_row, next_row
from rainbow_iqn_apex.environments.replayed import ReplayedEnvironment
from rainbow_iqn_apex.environments.vizdoom.options import VizdoomOptions
from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field, MultiDiscrete, Part, pack, packed
from rainbow_iqn_apex.memory.rows import Array, Row

if TYPE_CHECKING:
    import vizdoom

SCENARIOS = tuple(  # those of VizDoom that one player plays, with nothing but pictures and numbers
    "basic deadly_corridor deathmatch defend_the_center defend_the_line freedoom2 health_gathering "
    "health_gathering_supreme my_way_home predict_position rocket_basic simpler_basic take_cover".split()
)
_PICTURE = Field((3, 72, 128), "uint8")
_TICS_PER_SECOND = 35.0


class VizdoomEnvironment(ReplayedEnvironment):
    """One scenario of VizDoom.

    The engine's seed decides all that follows, and an episode differs that goes on from one of the engine's save games:
    a state is replayed actions.
    """

    pictures_per_second = _TICS_PER_SECOND

    def __init__(self, settings: EnvironmentSettings, seed: int) -> None:
        super().__init__(settings.env.partition(":")[2], seed)
        self.action_repeat = settings.action_repeat
        self._record = settings.record
        self._pictures: list[Array] = []  # of the tics of the last step
        self._limit = 0  # tics of an episode; 0: none
        self._tics = 0  # since the reset
        self._game = self._open(settings)
        buttons = self._game.get_available_buttons_size()
        assert isinstance(settings.own, VizdoomOptions)
        self._is_one = settings.own.vizdoom_buttons == "one"
        self._buttons = np.eye(buttons + 1, buttons, -1, dtype=np.int64)  # of each choice: none, and each alone
        names = [variable.name.lower() for variable in self._game.get_available_game_variables()]
        self.spec = EnvironmentSpec(
            packed(_PICTURE, Field((len(names),), "float32")) if names else _PICTURE,
            Discrete(buttons + 1) if self._is_one else MultiDiscrete((2,) * buttons),
            tuple(Part(name, place, place + 1) for place, name in enumerate(names)),
        )

    def _open(self, settings: EnvironmentSettings) -> "vizdoom.DoomGame":
        """Start the engine; raises ValueError, in one line, if that is impossible."""
        check_name(self.name)
        need("vizdoom", self.name)
        if settings.render:
            check_display()
        game = _configured(self.name, window=settings.render)
        self._errors = _errors()
        self._limit = game.get_episode_timeout()
        game.set_episode_timeout(0)  # the engine has no picture of the moment at which it ends an episode
        _start(game, self._errors)
        return game

    def begin(self, seed: int) -> Row:
        """Begin the episode that a seed decides."""
        self._tics = 0
        self._pictures = []
        try:
            self._game.set_seed(seed)
            self._game.new_episode()
        except self._errors as error:
            raise self._failure(error) from error
        return first_row(self._seen())

    def play(self, action: int | Array) -> Row:
        """Hold buttons for `action_repeat` tics, or until the episode ends."""
        pressed = self._pressed(action)
        tics = min(self.action_repeat, self._limit - self._tics) if self._limit else self.action_repeat
        before, self._pictures = self._pictures[-1:], []
        try:
            reward = self._act(pressed, tics)
        except self._errors as error:
            raise self._failure(error) from error
        self._tics += tics
        if self._game.is_episode_finished():
            self.end = "game_over"
            self._pictures = self._pictures or before  # the first tic ended it, and the screen is gone
            return next_row(self._obs.copy(), reward, self.end)
        self.end = "time_limit" if self._tics == self._limit else ""
        return next_row(self._seen(), reward, self.end)

    def _pressed(self, action: int | Array) -> list[int]:
        numbers = np.array(action)
        if numbers.shape != self.spec.action.field.shape or self.spec.action.error(numbers):
            raise ValueError(f"no such action: {one_line(action)}")
        pressed: list[int] = (self._buttons[int(action)] if self._is_one else numbers).tolist()
        return pressed

    def _act(self, pressed: list[int], tics: int) -> float:
        """Return what the tics have earned; each is drawn if pictures are kept."""
        if not self._record:
            return float(self._game.make_action(pressed, tics))
        reward = 0.0
        for _ in range(tics):
            reward += float(self._game.make_action(pressed, 1))
            if self._game.is_episode_finished():
                break
            self._pictures.append(self._state().screen_buffer.copy())
        return reward

    def _seen(self) -> Array:
        """Return the observation of a running episode."""
        state = self._state()
        screen = state.screen_buffer  # [144, 256, 3]
        if self._record and not self._pictures:
            self._pictures = [screen.copy()]
        small = cv2.resize(screen, _PICTURE.shape[:0:-1], interpolation=cv2.INTER_AREA)  # [72, 128, 3]
        picture = np.ascontiguousarray(small.transpose(2, 0, 1))
        if not self.spec.parts:
            return picture
        return pack([picture, (state.game_variables / 100).astype(np.float32)])

    def _state(self) -> Any:
        state = self._game.get_state()
        if state is None:
            raise RunError(f"vizdoom:{self.name} shows nothing at step {self.steps} of episode {self.episode}")
        return state

    def _failure(self, error: Exception) -> RunError:
        return RunError(
            f"vizdoom:{self.name}: the engine failed at step {self.steps} of episode {self.episode} "
            f"({one_line(error)}); start this process again"
        )

    def pictures(self) -> list[Array]:
        """Return the pictures [144, 256, 3] of the tics that the last step has shown."""
        return self._pictures

    def close(self) -> None:
        """Stop the engine, and close its window."""
        self._game.close()


def _configured(scenario: str, *, window: bool) -> "vizdoom.DoomGame":
    """Return the game of a scenario: 256 x 144 pixels in colour, without buttons that take a number."""
    import vizdoom

    game = vizdoom.DoomGame()
    game.load_config(str(Path(vizdoom.scenarios_path, f"{scenario}.cfg")))
    game.set_mode(vizdoom.Mode.PLAYER)
    game.set_screen_resolution(vizdoom.ScreenResolution.RES_256X144)
    game.set_screen_format(vizdoom.ScreenFormat.RGB24)
    game.set_available_buttons([each for each in game.get_available_buttons() if not each.name.endswith("_DELTA")])
    game.set_audio_buffer_enabled(False)
    game.set_automap_buffer_enabled(False)
    game.set_window_visible(window)
    game.set_doom_config_path(os.devnull)  # it saves its settings when it ends
    return game


def _errors() -> tuple[type[Exception], ...]:
    """Return what a call of the engine raises if the engine fails."""
    import vizdoom

    return (
        vizdoom.ViZDoomErrorException,
        vizdoom.ViZDoomUnexpectedExitException,
        vizdoom.ViZDoomIsNotRunningException,
        vizdoom.MessageQueueException,
        vizdoom.SharedMemoryException,
    )


def _start(game: "vizdoom.DoomGame", errors: tuple[type[Exception], ...]) -> None:
    """Start the engine, a process of its own; raises ValueError, in one line, if it does not start.

    The engine must outlive a request to stop, which a terminal or systemd sends to it as well: an actor still finishes
    its step. And it must end with its actor, also with one that is killed: alone it would wait for orders for ever. Its
    folder and the names of its shared memory are removed once it runs, as nobody could remove them for a killed actor:
    it needs neither any more.
    """
    with tempfile.TemporaryDirectory(prefix="vizdoom-", ignore_cleanup_errors=True) as folder:
        game.set_vizdoom_path(str(_launcher(Path(folder))))
        try:
            with blocked(*STOP_SIGNALS):
                game.init()
        except errors as error:
            raise ValueError(f"VizDoom's engine does not start: {one_line(error)}") from error
        finally:
            for kind in ("SM", "MQCtr", "MQDoom"):
                Path(f"/dev/shm/ViZDoom{kind}{game.get_instance_id()}").unlink(missing_ok=True)


def _launcher(folder: Path) -> Path:
    """Write a script that runs the engine in a folder, for its files, and lets Linux kill it when its actor ends."""
    import vizdoom

    bound = "setpriv --pdeathsig KILL -- " if shutil.which("setpriv") else ""
    launcher = folder / "engine"
    launcher.write_text(f'#!/bin/sh\ncd {shlex.quote(str(folder))}\nexec {bound}{shlex.quote(vizdoom.exe_path)} "$@"\n')
    launcher.chmod(0o700)
    return launcher


def check_name(name: str) -> None:
    """Raise ValueError for a name that no scenario has."""
    if name in SCENARIOS:
        return
    hint = suggestion(nearest(name.replace("-", "_"), SCENARIOS, 1), f"there are: {', '.join(SCENARIOS)}")
    raise ValueError(f"vizdoom has no scenario {name!r}; {hint}")

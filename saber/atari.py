"""Atari under SABER rules (Toromanoff et al. 2019, arXiv 1908.04683; Machado et al. 2018, arXiv 1709.06009).

All 18 actions in every game, sticky actions drawn by the emulator at every frame, loss of life ignored, no no-ops and
no fire at a reset, raw rewards. An episode ends when the game is over, when no reward came for 5 minutes of game time,
or after 100 hours.
"""

import math
from dataclasses import replace

import cv2
import numpy as np
from ale_py import SDL_SUPPORT, ALEInterface, LoggerMode

from rainbow_iqn_apex.environments.display import check_display
from rainbow_iqn_apex.environments.interface import ENDS, EnvironmentSettings, first_row
from rainbow_iqn_apex.environments.scores import FRAMES_PER_SECOND, steps_in
from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field
from rainbow_iqn_apex.memory.rows import Array, Arrays, Row, StepType
from rainbow_iqn_apex.saber.emulator_state import EmulatorState
from rainbow_iqn_apex.saber.games import check_game, rom_path

SIZE = 84  # pixels
NB_ACTIONS = 18  # ALE counts fewer for skiing and lost_luggage, and plays what it does not count as a no-op
_ENDS = ("", *ENDS)  # as a state has them
_CHOICE = Discrete(NB_ACTIONS)


class AtariEnvironment:
    """One Atari game: observations [84, 84] uint8, the brighter of the last two frames of an agent step."""

    spec = EnvironmentSpec(Field((SIZE, SIZE), "uint8"), _CHOICE)
    pictures_per_second = float(FRAMES_PER_SECOND)
    blinks = True

    max_stuck_seconds = 5 * 60  # of game time without a reward
    max_saber_seconds = 100 * 60 * 60
    max_seconds = 30 * 60  # without SABER's rules: a truncation

    def __init__(self, settings: EnvironmentSettings, seed: int) -> None:
        self.action_repeat = settings.action_repeat
        self.end = ""
        self._saber_mode = settings.saber_mode
        self._record = settings.record
        self._pictures: list[Array] = []  # of the frames of the last step
        self._ale = open_emulator(settings, seed)
        self._gray = np.empty(self._ale.getScreenDims(), np.uint8)  # [210 to 250, 160]
        self._state = EmulatorState(
            self._ale, lambda: open_emulator(replace(settings, render=False), seed), self.action_repeat
        )
        self._steps = 0  # agent steps of this episode
        self._stuck_steps = 0  # agent steps since the last reward

    def reset(self) -> Row:
        """Begin an episode with the screen that the emulator shows after its reset."""
        self._ale.reset_game()
        self._state.begin()
        self._pictures = [self._ale.getScreenRGB()] if self._record else []
        self._steps = self._stuck_steps = 0
        self.end = ""
        return first_row(self._screen())

    def step(self, action: int | Array) -> Row:
        """Play `action` for `action_repeat` frames, or until the game is over."""
        action = _CHOICE.number(action)
        if self.end:
            raise ValueError("the episode is over: reset first")
        reward, obs = self._repeat(action)
        self._state.add(action)
        self._steps += 1
        self._stuck_steps = 0 if reward else self._stuck_steps + 1
        self.end = self._why_over()
        if not self.end:
            return Row(obs, StepType.MID, reward, 1.0)
        truncated = self.end == "time_limit" and not self._saber_mode
        return Row(obs, StepType.LAST, reward, 1.0 if truncated else 0.0)

    def _repeat(self, action: int) -> tuple[float, Array]:
        """Return the summed reward and the maximum of the last two frames; a frame not reached counts as black."""
        ale, reward, screens = self._ale, 0, []
        self._pictures = []
        for frame in range(self.action_repeat):
            reward += unroll(ale.act(action))
            if frame >= self.action_repeat - 2:
                screens.append(self._screen())
            if self._record:
                self._pictures.append(ale.getScreenRGB())
            if ale.game_over():
                break
        if not screens:
            return float(reward), np.zeros((SIZE, SIZE), np.uint8)
        return float(reward), np.maximum(screens[0], screens[-1], out=screens[0])

    def _screen(self) -> Array:
        self._ale.getScreenGrayscale(self._gray)
        return cv2.resize(self._gray, (SIZE, SIZE), interpolation=cv2.INTER_LINEAR)  # [84, 84] uint8, a new array

    def _why_over(self) -> str:
        if self._ale.game_over():
            return "game_over"
        if self._saber_mode and self._stuck_steps > steps_in(self.max_stuck_seconds, self.action_repeat):
            return "stuck"
        limit = self.max_saber_seconds if self._saber_mode else self.max_seconds
        return "time_limit" if self._steps >= steps_in(limit, self.action_repeat) else ""

    def pictures(self) -> list[Array]:
        """All frames that the last step has reached, each [210 to 250, 160, 3]: games blink at every other one."""
        return self._pictures

    def snapshot(self) -> Arrays:
        """See `EmulatorState.snapshot`; and `counters` [3] int64."""
        counters = [self._steps, self._stuck_steps, _ENDS.index(self.end)]
        return self._state.snapshot() | {"counters": np.array(counters, np.int64)}

    def restore(self, arrays: Arrays) -> None:
        """Continue exactly where `snapshot` saved a state of the same game and settings."""
        self._state.restore(arrays)
        self._steps, self._stuck_steps, end = arrays["counters"].tolist()
        self.end = _ENDS[end]

    def close(self) -> None:
        """Do nothing: the emulator and its window close with the last reference to them."""


def open_emulator(settings: EnvironmentSettings, seed: int) -> ALEInterface:
    """Load the game; raises ValueError for impossible settings and RuntimeError if there is nowhere to draw."""
    if error := check_game(settings.game):
        raise ValueError(error)
    if settings.action_repeat < 1 or not 0 <= settings.proba_sticky_actions <= 1:
        raise ValueError(f"action_repeat must be at least 1 and proba_sticky_actions a probability: {settings}")
    if settings.render:
        check_display()
        if not SDL_SUPPORT:
            raise RuntimeError("cannot render: this build of ale-py has no SDL")
    ALEInterface.setLoggerMode(LoggerMode.Error)  # no banner
    ale = ALEInterface()
    ale.setInt("random_seed", seed % 2**31)  # ALE takes a negative seed for "none"
    ale.setFloat("repeat_action_probability", settings.proba_sticky_actions)
    ale.setInt("frame_skip", 1)
    ale.setInt("max_num_frames_per_episode", 0)  # no limit of ALE's own
    ale.setBool("display_screen", settings.render)
    ale.loadROM(rom_path(settings.game))
    return ale


def unroll(reward: int) -> int:
    """Correct the reward of the frame in which the game's score counter rolled over: r + 10^⌈log10|r|⌉ (SABER).

    A score that passes 10^6 by 50 after 999 900 shows as -999 850 and means 150; no game takes away that much.
    """
    if reward >= -900_000:
        return reward
    return reward + int(10 ** math.ceil(math.log10(-reward)))

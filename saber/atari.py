"""Atari under SABER rules (Toromanoff et al. 2019, arXiv 1908.04683; Machado et al. 2018, arXiv 1709.06009).

All 18 actions in every game, sticky actions drawn by the emulator at every frame, loss of life ignored, no no-ops and
no fire at a reset, raw rewards. An episode ends when the game is over, when no reward came for 5 minutes of game time,
or after 100 hours.
"""

import math
import struct
from collections.abc import Callable, Iterable
from dataclasses import replace

import cv2
import numpy as np
from ale_py import SDL_SUPPORT, ALEInterface, ALEState, LoggerMode

from rainbow_iqn_apex.environments.display import check_display
from rainbow_iqn_apex.environments.interface import ENDS, EnvironmentSettings, first_row
from rainbow_iqn_apex.environments.scores import FRAMES_PER_SECOND, steps_in
from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field
from rainbow_iqn_apex.memory.rows import Array, Arrays, Row, StepType
from rainbow_iqn_apex.saber.games import check_game, rom_path

PERIOD = 4096  # agent steps from one starting state to the next; at most 1.5 s to play again
PROOF = 32  # agent steps; with 4 frames each, all frames repeat an action from before with probability 0.25^128
RETRY = 1024  # agent steps from a failed proof to the next state tried; a proof takes as long as some 60 steps
MAX_SCANLINES = 500  # per frame: 343 at most if a vertical sync ended it, over 650 if the instruction limit did
NOOP = 0


class EmulatorState:
    """Exact resumption of an emulator, in the middle of an episode and in another process.

    The next frames depend on more than ALE saves (`cloneState(include_rng=True)`, ale-py 0.12.1). Missing are
    1. the action that a sticky frame repeats;
    2. whether the game's program had ended its last frame by a vertical sync. If not, the program continues to draw in
       a picture that is not saved either: restored elsewhere, the game plays on differently or the process crashes.
       Q*bert and Tetris begin every episode so; 3-D Tic-Tac-Toe does the same whenever it computes its move;
    3. the last screen, and the shapes that the video chip draws until the program next sets its registers: restored
       elsewhere, objects collide that should not. That happened to one state in twenty, in a third of the games.

    After a reset, though, all emulators of a game are alike but for their random numbers. So `snapshot` saves the state
    after the reset together with all actions since, and `restore` plays these actions again. To keep them few in a long
    episode, a newer state replaces the state after the reset once the newer state is proven: a second emulator has
    started from the newer state, and has arrived where this emulator is.

        state = EmulatorState(ale, open_twin, action_repeat)
        state.begin()        # after every reset
        state.add(action)    # after every agent step

    `open_twin` opens a second emulator of the same settings; it is called in long episodes only.
    """

    def __init__(self, ale: ALEInterface, open_twin: Callable[[], ALEInterface], action_repeat: int) -> None:
        self._ale = ale
        self._open_twin = open_twin
        self._twin: ALEInterface | None = None
        self._action_repeat = action_repeat
        self.begin()

    def begin(self) -> None:
        """Begin an episode: the emulator has just been reset."""
        self._begin_at(_serialize(self._ale))

    def _begin_at(self, start: bytes) -> None:
        self._start = start
        self._actions = bytearray()  # chosen since `_start`
        self._candidate = b""  # a newer state that is to be proven, if any
        self._candidate_at = 0  # how many actions had been chosen at that state
        self._next = PERIOD  # number of actions at which to propose or prove the next state

    def add(self, action: int) -> None:
        """Remember the action of the agent step that was just played."""
        self._actions.append(action)
        if len(self._actions) < self._next:
            return
        if self._candidate:
            self._prove()
        else:
            self._propose()

    def _propose(self) -> None:
        state = _serialize(self._ale)
        if not _within_frame(state):  # else the next step tries again
            self._candidate = state
            self._candidate_at = len(self._actions)
            self._next = self._candidate_at + PROOF

    def _prove(self) -> None:
        self._twin = self._twin or self._open_twin()
        _start_from(self._twin, self._candidate)
        self._play(self._twin, self._actions[self._candidate_at :])
        same_screen = np.array_equal(self._twin.getScreen(), self._ale.getScreen())
        if same_screen and _serialize(self._twin) == _serialize(self._ale):
            self._start = self._candidate
            del self._actions[: self._candidate_at]
            self._next = PERIOD
        else:
            self._next = len(self._actions) + RETRY
        self._candidate = b""

    def _play(self, ale: ALEInterface, actions: Iterable[int]) -> None:
        for action in actions:
            for _ in range(self._action_repeat):
                ale.act(action)
                if ale.game_over():  # a further call would not play, but draw a random number
                    break

    def snapshot(self) -> Arrays:
        """Return the arrays that `restore` needs: `ale` [about 14 000] uint8, `actions` [steps since] uint8."""
        return {"ale": np.frombuffer(self._start, np.uint8), "actions": np.frombuffer(bytes(self._actions), np.uint8)}

    def restore(self, arrays: Arrays) -> None:
        """Bring the emulator, its screen included, to where `snapshot` was called."""
        start = arrays["ale"].tobytes()
        _start_from(self._ale, start)
        self._begin_at(start)
        for action in arrays["actions"].tolist():
            self._play(self._ale, [action])
            self.add(action)


def _start_from(ale: ALEInterface, state: bytes) -> None:
    ale.reset_game()
    if not _within_frame(state):  # else `state` is that after a reset, and this emulator is within the same frame
        while _within_frame(_serialize(ale)):
            ale.act(NOOP)
    ale.restoreState(ALEState(state))


def _serialize(ale: ALEInterface) -> bytes:
    return ale.cloneState(include_rng=True).serialize()


def _within_frame(state: bytes) -> bool:
    """Return whether the last frame was left unended; the scanline is the seventh number of the video chip's part."""
    numbers = state.index(b"\x03\x00\x00\x00TIA") + 7
    scanline: int = struct.unpack_from("<7i", state, numbers)[6]
    return scanline > MAX_SCANLINES


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
        ale = self._ale
        reward = 0
        screens = []
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

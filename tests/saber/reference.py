"""A slow, obvious player of the same game, and what the tests do to the emulator."""

from collections.abc import Iterable
from typing import NamedTuple

import cv2
import numpy as np
import pytest
from ale_py import Action, ALEInterface, LoggerMode, roms

from rainbow_iqn_apex.environments.interface import Environment, EnvironmentSettings
from rainbow_iqn_apex.environments.registry import make_environment
from rainbow_iqn_apex.memory.rows import Array, Row, StepType
from rainbow_iqn_apex.saber.atari import AtariEnvironment


class Played(NamedTuple):
    frames: list[Array]  # grey screens [height, 160] uint8 of the frames that were reached
    rewards: list[int]  # of the same frames, as the emulator gave them
    over: bool


class Reference:
    """One plain emulator, frame by frame, with SABER's sticky actions."""

    def __init__(self, game: str, seed: int) -> None:
        ALEInterface.setLoggerMode(LoggerMode.Error)
        self.ale = ALEInterface()
        self.ale.setInt("random_seed", seed)
        self.ale.setFloat("repeat_action_probability", 0.25)
        path = roms.get_rom_path(game)
        assert path is not None
        self.ale.loadROM(path)

    def reset(self) -> np.ndarray:
        self.ale.reset_game()
        return resized(self.ale.getScreenGrayscale())

    def step(self, action: int, repeat: int = 4) -> Played:
        frames: list[Array] = []
        rewards: list[int] = []
        while len(frames) < repeat and not self.ale.game_over():
            rewards.append(self.ale.act(action))
            frames.append(self.ale.getScreenGrayscale())
        return Played(frames, rewards, self.ale.game_over())


def resized(frame: np.ndarray) -> np.ndarray:
    return cv2.resize(frame, (84, 84), interpolation=cv2.INTER_LINEAR)


def observation(frames: list[Array], repeat: int = 4) -> np.ndarray:
    """The maximum of the last two of `repeat` frames, those that are missing being black."""
    black = [np.zeros_like(frames[0])] * (repeat - len(frames))
    both = [resized(frame).astype(int) for frame in (frames + black)[-2:]]
    return np.where(both[0] > both[-1], both[0], both[-1]).astype(np.uint8)


def bilinear(frame: np.ndarray) -> np.ndarray:
    """Resize to 84×84 by the definition: pixel centres at half-integers, weights by distance, edges repeated."""
    height, width = frame.shape
    result = np.zeros((84, 84))
    for y in range(84):
        for x in range(84):
            v = min(max((y + 0.5) * height / 84 - 0.5, 0), height - 1)
            u = min(max((x + 0.5) * width / 84 - 0.5, 0), width - 1)
            top, left = int(v), int(u)
            bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
            upper = frame[top, left] * (left + 1 - u) + frame[top, right] * (u - left)
            lower = frame[bottom, left] * (left + 1 - u) + frame[bottom, right] * (u - left)
            result[y, x] = upper * (top + 1 - v) + lower * (v - top)
    return result


def random_actions(count: int, seed: int = 0) -> list[int]:
    actions: list[int] = np.random.default_rng(seed).integers(18, size=count).tolist()
    return actions


def same(left: Row, right: Row) -> bool:
    return left[1:] == right[1:] and left.obs.dtype == right.obs.dtype and np.array_equal(left.obs, right.obs)


def make_atari(settings: EnvironmentSettings, seed: int) -> AtariEnvironment:
    environment = make_environment(settings, seed)
    assert isinstance(environment, AtariEnvironment)
    return environment


def play(environment: Environment, actions: Iterable[int | Array]) -> list[Row]:
    """The rows after each action; after a LAST row comes the FIRST row of the next episode."""
    rows: list[Row] = []
    for action in actions:
        rows.append(environment.step(action))
        if rows[-1].step_type == StepType.LAST:
            rows.append(environment.reset())
    return rows


def say_rewards(monkeypatch: pytest.MonkeyPatch, rewards: Iterable[int] = ()) -> None:
    """Let the next environment's emulator stand still and say these rewards, one per frame, then 0."""

    class Speaking(ALEInterface):
        def __init__(self) -> None:
            super().__init__()
            self.rewards = iter(rewards)

        def act(self, _action: Action | int, _paddle_strength: float = 1.0) -> int:
            return next(self.rewards, 0)

    monkeypatch.setattr("rainbow_iqn_apex.saber.atari.ALEInterface", Speaking)


def end_after(monkeypatch: pytest.MonkeyPatch, frames: int) -> None:
    """Let the next environment's emulator be over after so many frames of each episode."""

    class Ending(ALEInterface):
        def reset_game(self) -> None:
            super().reset_game()
            self.frames = 0

        def act(self, action: Action | int, paddle_strength: float = 1.0) -> int:
            self.frames += 1
            return super().act(action, paddle_strength)

        def game_over(self, **_: bool) -> bool:
            return self.frames >= frames

    monkeypatch.setattr("rainbow_iqn_apex.saber.atari.ALEInterface", Ending)

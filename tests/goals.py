"""Bits to be flipped until they are as desired: goal environments of tests (Andrychowicz et al. 2017, section 3.1)."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

BITS = 7


class BitFlip(gymnasium.Env[dict[str, Any], Any]):
    """An action flips one bit; each step earns -1 but the one that reaches the goal, with which the episode ends."""

    observation_space: spaces.Dict

    def __init__(self) -> None:
        bits = spaces.MultiBinary(BITS)
        self.observation_space = spaces.Dict({"observation": bits, "achieved_goal": bits, "desired_goal": bits})
        self.action_space = spaces.Discrete(BITS)
        self.bits = self.goal = np.zeros(BITS, np.int8)

    def _seen(self) -> dict[str, Any]:
        return {"observation": self.bits.copy(), "achieved_goal": self.bits.copy(), "desired_goal": self.goal.copy()}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.bits = self.np_random.integers(0, 2, BITS).astype(np.int8)
        self.goal = self.np_random.integers(0, 2, BITS).astype(np.int8)
        return self._seen(), {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self.bits[action] ^= 1
        reward = self.compute_reward(self.bits, self.goal, {})
        return self._seen(), reward, self.compute_terminated(self.bits, self.goal, {}), False, {}

    def compute_reward(self, achieved: Any, desired: Any, _info: dict[str, Any]) -> float:
        assert achieved.dtype == desired.dtype == np.int8
        return 0.0 if np.array_equal(achieved, desired) else -1.0

    def compute_terminated(self, achieved: Any, desired: Any, _info: dict[str, Any]) -> bool:
        return np.array_equal(achieved, desired)


class Unjudged(BitFlip):
    """The same, but nobody can ask what another goal would have earned."""

    compute_reward = None  # type: ignore[assignment]


class Pictured(BitFlip):
    """The same, with a picture beside the goals."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space["seen"] = spaces.Box(0, 255, (20, 20, 3), np.uint8)

    def _seen(self) -> dict[str, Any]:
        return super()._seen() | {"seen": np.zeros((20, 20, 3), np.uint8)}


gymnasium.register("BitFlip-v0", BitFlip, max_episode_steps=BITS)  # type: ignore[arg-type]
gymnasium.register("Unjudged-v0", Unjudged)  # type: ignore[arg-type]
gymnasium.register("Pictured-v0", Pictured)  # type: ignore[arg-type]
BIT_FLIP = "--env gymnasium:tests.goals:BitFlip-v0"

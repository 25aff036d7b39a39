"""Environments with spaces that none of Gymnasium's own have: importing this registers them.

An id such as gymnasium:tests.environments.spaced:Goal-v0 finds them from any process.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

_SMALL = spaces.Box(-np.inf, np.inf, (2,), np.float64)


class Goal(gymnasium.Env[Any, Any]):
    """A point in the plane that shall come to another; Dict observations, a Box with bounds of its own."""

    def __init__(self) -> None:
        goals = {"observation": spaces.Tuple([spaces.Discrete(3, start=1), _SMALL])}
        self.observation_space = spaces.Dict(goals | {"desired_goal": _SMALL, "achieved_goal": _SMALL})
        self.action_space = spaces.Box(np.array([-0.1, -0.3], np.float32), np.array([0.3, 0.1], np.float32))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed, options=options)
        self._goal, self._place, self._steps = self.np_random.normal(size=2), np.zeros(2), 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self._place = self._place + action + 0.01 * self.np_random.normal(size=2)
        self._steps += 1
        distance = float(np.linalg.norm(self._place - self._goal))
        return self._seen(), -distance, distance < 0.3, self._steps == 50, {}

    def _seen(self) -> dict[str, Any]:
        speed = (self._steps % 3 + 1, self._place - self._goal)
        return {"desired_goal": self._goal, "achieved_goal": self._place, "observation": speed}


class Locks(gymnasium.Env[Any, Any]):
    """Three locks, which the right numbers open; MultiDiscrete observations and actions, both with a start."""

    def __init__(self) -> None:
        self.action_space = spaces.MultiDiscrete(np.array([[3, 4, 2]]), start=np.array([[-1, 0, 5]]))
        self.observation_space = spaces.MultiDiscrete([2, 2, 9], start=[0, 0, -4])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed, options=options)
        self.action_space.seed(seed)
        self._code = self.action_space.sample()
        return np.array([0, 0, -4]), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        opened = (action == self._code)[0].astype(int)
        seen = np.array([*opened[:2], self.np_random.integers(9) - 4])
        return seen, float(opened.sum()), bool(opened.all()), False, {}


class Memory(gymnasium.Env[Any, Any]):
    """Bytes of a machine's memory, too few for an image: each has a range of its own."""

    observation_space = spaces.Box(0, 255, (5,), np.uint8)
    action_space = spaces.Discrete(3)
    highest = np.array([256, 2, 100, 30, 200])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed, options=options)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        return self._seen(), 1.0, bool(self.np_random.random() < 0.1), False, {}

    def _seen(self) -> Any:
        return self.np_random.integers(0, self.highest).astype(np.uint8)


class Scene(gymnasium.Env[Any, Any]):
    """A picture that is bright or dark beside numbers, one of which is high or low: 1 is right if they agree."""

    observation_space = spaces.Dict(
        {
            "camera": spaces.Box(0, 255, (24, 20, 3), np.uint8),
            "lamp": spaces.Discrete(3),
            "speed": spaces.Box(-np.inf, np.inf, (2,), np.float64),
        }
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed, options=options)
        self._steps = 0
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        reward = 1.0 if action == (self._bright == self._high) else 0.0
        self._steps += 1
        return self._seen(), reward, False, self._steps == 20, {}

    def _seen(self) -> dict[str, Any]:
        self._bright, self._high = (self.np_random.random(2) < 0.5).tolist()
        camera = self.np_random.integers(0, 100, (24, 20, 3)) + 150 * self._bright
        speed = np.array([1.0 if self._high else -1.0, self.np_random.normal()])
        return {"camera": camera.astype(np.uint8), "lamp": int(self.np_random.integers(3)), "speed": speed}


def make_normalised() -> gymnasium.Env[Any, Any]:
    """Make a pole whose observations depend on all that its environment has shown: no seed decides that."""
    return gymnasium.wrappers.NormalizeObservation(gymnasium.make("CartPole-v1").unwrapped)


gymnasium.register("Normalised-v0", "tests.environments.spaced:make_normalised", max_episode_steps=500)
gymnasium.register("Scene-v0", "tests.environments.spaced:Scene")
gymnasium.register("Goal-v0", "tests.environments.spaced:Goal")
gymnasium.register("Locks-v0", "tests.environments.spaced:Locks")
gymnasium.register("Memory-v0", "tests.environments.spaced:Memory")

"""Goal environments of Gymnasium-Robotics' form: what a step would have earned, had another goal been desired.

Such an environment has observations {"observation", "achieved_goal", "desired_goal"} and a method
`compute_reward(achieved_goal, desired_goal, info)`. If it has `compute_terminated`, too, that decides about true ends.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.common.text import one_line
from rainbow_iqn_apex.environments.interface import as_number
from rainbow_iqn_apex.memory.hindsight import ACHIEVED, DESIRED, Judge
from rainbow_iqn_apex.memory.rows import Array


class GoalJudge:
    """Asks an environment's `compute_reward`, with goals in the environment's own shape and type, and an empty info."""

    def __init__(self, environment: Any, space: spaces.Space[Any]) -> None:
        self._environment = environment
        assert space.shape is not None and space.dtype is not None
        self._shape, self._dtype = space.shape, space.dtype

    def __call__(self, achieved: Array, desired: Array, discount: float) -> tuple[float, float]:
        """Return reward and discount; the discount stays as it is where the environment does not decide it."""
        goals = [np.asarray(goal).reshape(self._shape).astype(self._dtype) for goal in (achieved, desired)]
        found = self._environment.compute_reward(*goals, {})
        if (reward := as_number(found)) is None:
            raise RunError(f"compute_reward has returned {one_line(found)}; expected a number, fix the environment")
        if callable(getattr(self._environment, "compute_terminated", None)):
            discount = 0.0 if self._environment.compute_terminated(*goals, {}) else 1.0
        return reward, discount


def judge_of(environment: gymnasium.Env[Any, Any]) -> Judge | None:
    """Return how an environment judges goals; None if it has no goals of numbers, or no `compute_reward`."""
    space, inner = environment.observation_space, environment.unwrapped
    if not isinstance(space, spaces.Dict) or not callable(getattr(inner, "compute_reward", None)):
        return None
    goals = [space.spaces.get(name) for name in (ACHIEVED, DESIRED)]
    if not all(isinstance(goal, spaces.Box | spaces.MultiBinary) for goal in goals) or goals[0] is None:
        return None
    return GoalJudge(inner, goals[0])

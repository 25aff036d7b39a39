"""A task that cannot be solved without memory, as a Gymnasium environment: `--env gymnasium:benchmarks.cue:Cue-v0`.

The first observation shows one of four cues, the next ones nothing; 20 steps later a signal asks for the action that
the cue names. Only the action at the signal counts: 1 if it is the right one, else 0. An agent without memory gets 0.25
on average.
"""

from typing import Any

import gymnasium
import numpy as np

DELAY = 20  # steps from the cue to the signal
CUES = 4


class Cue(gymnasium.Env[np.ndarray, np.int64]):
    """Shows observations [5] float32: a one-hot cue, and 1 at the signal."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(0, 1, (CUES + 1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(CUES)
        self._cue = 0
        self._step = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Show a new cue."""
        super().reset(seed=seed, options=options)
        self._cue = int(self.np_random.integers(CUES))
        self._step = 0
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Take a step; the episode ends with the action at the signal."""
        is_over = self._step == DELAY
        reward = float(is_over and int(action) == self._cue)
        self._step += 1
        return self._observation(), reward, is_over, False, {}

    def _observation(self) -> np.ndarray:
        observation = np.zeros(CUES + 1, np.float32)
        if self._step == 0:
            observation[self._cue] = 1
        observation[CUES] = self._step == DELAY
        return observation


gymnasium.register("Cue-v0", "benchmarks.cue:Cue")

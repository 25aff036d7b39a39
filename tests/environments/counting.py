"""Environments that count, for the tests of vector environments: each row shows which step of which episode it is."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv


class Counting(gymnasium.Env[dict[str, Any], Any]):
    """Episode n lasts 1, 2 or 3 steps; every second one is cut off. A step's reward is what it shows and the action."""

    observation_space = spaces.Dict({"episode": spaces.Box(0, 1e6, (1,)), "step": spaces.Box(0, 1e6, (2,))})
    action_space = spaces.Discrete(5)

    def __init__(self) -> None:
        self.episode, self.at = -1, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed, options=options)
        if seed is not None:
            self.episode = -1  # a vector's reset, with a seed, begins all anew
        self.episode, self.at = self.episode + 1, 0
        return self._shown(), {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self.at += 1
        is_over = self.at == 1 + self.episode % 3
        is_cut = self.episode % 2 == 1
        return self._shown(), self.at + 10.0 * int(action), is_over and not is_cut, is_over and is_cut, {}

    def _shown(self) -> dict[str, Any]:
        return {"episode": np.full(1, self.episode, np.float32), "step": np.full(2, self.at, np.float32)}


class Paying(gymnasium.Env[Any, Any]):
    """Five steps, each of which pays the same: the score tells which environment it was."""

    observation_space = spaces.Box(0, 5, (2,))
    action_space = spaces.Discrete(2)

    def __init__(self, pay: float) -> None:
        self.pay, self.at = pay, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self.at = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ARG002 - all pay the same
        self.at += 1
        return np.full(2, self.at, np.float32), self.pay, self.at == 5, False, {}


class Forgetful(SyncVectorEnv):
    """A vector with the mode SAME_STEP that does not hand out what its episodes end with."""

    def step(self, actions: Any) -> Any:
        *step, infos = super().step(actions)
        return *step, {name: info for name, info in infos.items() if "final" not in name}


def make_forgetful(num_envs: int) -> Forgetful:
    return Forgetful([Counting] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def make_too_many(num_envs: int) -> SyncVectorEnv:
    return SyncVectorEnv([Counting] * (num_envs + 1))


for name, mode in (("Next", "NEXT_STEP"), ("Same", "SAME_STEP"), ("Disabled", "DISABLED")):
    kwargs = {"vector_kwargs": {"autoreset_mode": AutoresetMode[mode]}}
    gymnasium.register(f"counting/{name}-v0", entry_point=f"{__name__}:Counting", kwargs=kwargs)
for name, pay in (("One", 1.0), ("Two", 2.0)):
    gymnasium.register(f"counting/{name}-v0", entry_point=f"{__name__}:Paying", kwargs={"pay": pay})
gymnasium.register("counting/Forgetful-v0", vector_entry_point=f"{__name__}:make_forgetful")
gymnasium.register("counting/Wrong-v0", vector_entry_point=f"{__name__}:make_too_many")

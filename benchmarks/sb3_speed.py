"""Measures how fast PPO of Stable-Baselines3 trains on Atari; runs in the peers' environment, prints frames a second.

    .venv-peers/bin/python benchmarks/sb3_speed.py subprocesses --game space_invaders --seconds 60 --warm-up 20

This file imports nothing of the project. All 18 actions and sticky actions in the emulator, as under SABER's rules; no
no-ops, and no end at the loss of a life. Hyperparameters are those of the zoo for Atari, of which our own are the same.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.vector import AutoresetMode
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecFrameStack

ENVIRONMENTS = 8
STEPS = 128
FRAMES = 4
ROUND = ENVIRONMENTS * STEPS  # agent steps
LEAST_ROUNDS = 3  # that begin: one whole round after the first, which is slower
_STICKY = 0.25


class AleVectorEnv(VecEnv):  # type: ignore[misc]
    """Puts ale-py's environments in C++ behind the interface of Stable-Baselines3."""

    def __init__(self, game: str, seed: int) -> None:
        self._environments = AtariVectorEnv(
            game,
            num_envs=ENVIRONMENTS,
            full_action_space=True,
            repeat_action_probability=_STICKY,
            reward_clipping=True,
            noop_max=0,
            use_fire_reset=False,
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
        self._first_seed: int | None = seed
        spaces = self._environments.single_observation_space, self._environments.single_action_space
        super().__init__(ENVIRONMENTS, *spaces)

    def reset(self) -> Any:
        """Begin an episode in each environment."""
        obs, _ = self._environments.reset(seed=self._first_seed)
        self._first_seed = None
        return obs

    def step_async(self, actions: Any) -> None:
        """Send the actions."""
        self._environments.send(actions)

    def step_wait(self) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
        """Receive what the actions led to."""
        obs, reward, terminated, truncated, _ = self._environments.recv()
        return obs, reward, np.logical_or(terminated, truncated), [{} for _ in range(ENVIRONMENTS)]

    def close(self) -> None:
        """End the environments."""
        self._environments.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of all environments, once for each; SB3 asks for the mode of drawing."""
        return [getattr(self._environments, attr_name)] * len(list(self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refuse to set attributes."""
        raise NotImplementedError(f"cannot set {attr_name} to {value} of {indices}")

    def env_method(self, method_name: str, *_: Any, indices: Any = None, **__: Any) -> list[Any]:
        """Refuse to call methods."""
        raise NotImplementedError(f"cannot call {method_name} of {indices}")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return that no environment is wrapped."""
        return [wrapper_class is None] * len(list(self._get_indices(indices)))


def environments(kind: str, game: str, seed: int) -> Any:
    """Return eight environments with stacks of four frames: in one process, in one each, or ale-py's own."""
    if kind == "ale-vector":
        return AleVectorEnv(game, seed)
    made = make_atari_env(
        f"ALE/{game.title().replace('_', '')}-v5",
        n_envs=ENVIRONMENTS,
        seed=seed,
        env_kwargs={"frameskip": 1, "repeat_action_probability": _STICKY, "full_action_space": True},
        wrapper_kwargs={"noop_max": 0, "terminal_on_life_loss": False},
        vec_env_cls=SubprocVecEnv if kind == "subprocesses" else DummyVecEnv,
    )
    return VecFrameStack(made, n_stack=4)


def whole_rounds(starts: Sequence[float], warm_up_s: float) -> float:
    """Return rounds a second, from the first start after the warm-up to the last one; at least one round counts."""
    begun = min(warm_up_s, starts[-2])
    counted = [moment for moment in starts if moment >= begun]
    return (len(counted) - 1) / (counted[-1] - counted[0])


def frames_per_second(kind: str, game: str, warm_up_s: float, seconds: float) -> float:
    """Train for so long, and return the frames a second of whole rounds after the warm-up."""
    starts: list[float] = []
    model = PPO(
        "CnnPolicy",
        environments(kind, game, 1),
        n_steps=STEPS,
        n_epochs=4,
        batch_size=ROUND // 4,
        learning_rate=2.5e-4,
        clip_range=0.1,
        ent_coef=0.01,
        vf_coef=0.5,
        seed=1,
        device="cpu",
    )
    begun = time.monotonic()

    def watch(*_: dict[str, Any]) -> bool:
        now = time.monotonic() - begun
        if model.num_timesteps % ROUND == ENVIRONMENTS:  # the first step of a round
            starts.append(now)
        return now < warm_up_s + seconds or len(starts) < LEAST_ROUNDS

    callback: Callable[..., bool] = watch
    model.learn(10**9, callback=callback)
    model.get_env().close()
    return ROUND * FRAMES * whole_rounds(starts, warm_up_s)


def main() -> None:
    """Read the command line, train and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("one-process", "subprocesses", "ale-vector"))
    parser.add_argument("--game", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--warm-up", type=float, required=True)
    args = parser.parse_args()
    print(frames_per_second(args.kind, args.game, args.warm_up, args.seconds))


if __name__ == "__main__":
    main()

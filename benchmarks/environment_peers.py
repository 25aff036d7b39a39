"""Other Atari environments with the preprocessing of `saber.atari`, set as near to SABER as their options allow.

All 18 actions, each frame sticky with 0.25, 4 frames a step, the maximum of two, grey, 84x84, raw rewards, no no-ops,
no fire at a reset, no end at the loss of a life, no limit. Neither of them ends an episode in which the agent is stuck.
"""

import itertools
from collections.abc import Sequence

import ale_py
import gymnasium
import numpy as np
from ale_py.vector_env import AtariVectorEnv
from gymnasium.wrappers import AtariPreprocessing

from benchmarks.harness import Work

_NO_LIMIT = 10**9  # frames


def ale_vector(game: str, actions: Sequence[int], steps: int) -> Work:
    """Return a work of ale-py's environment in C++, with one game and one thread, and no stack."""
    environment = AtariVectorEnv(
        game,
        num_envs=1,
        num_threads=1,
        stack_num=1,
        full_action_space=True,
        repeat_action_probability=0.25,
        reward_clipping=False,
        noop_max=0,
        use_fire_reset=False,
        max_num_frames_per_episode=_NO_LIMIT,
    )
    environment.reset(seed=1)
    turns = itertools.cycle(np.array(actions)[:, None])

    def work() -> None:
        for action in itertools.islice(turns, steps):
            environment.step(action)  # which resets by itself

    return work


def atari_preprocessing(game: str, actions: Sequence[int], steps: int) -> Work:
    """Return a work of gymnasium's wrapper in Python around ale-py's environment."""
    gymnasium.register_envs(ale_py)
    name = game.title().replace("_", "")
    played = gymnasium.make(
        f"ALE/{name}-v5",
        frameskip=1,
        repeat_action_probability=0.25,
        full_action_space=True,
        max_num_frames_per_episode=_NO_LIMIT,
        disable_env_checker=True,
    )
    environment = AtariPreprocessing(played, noop_max=0)
    environment.reset(seed=1)
    turns = itertools.cycle(actions)

    def work() -> None:
        for action in itertools.islice(turns, steps):
            _, _, terminated, truncated, _ = environment.step(action)
            if terminated or truncated:
                environment.reset()

    return work

"""Trains one agent of Stable-Baselines3 and prints its episodes as JSON; runs in the peers' environment.

    .venv-peers/bin/python benchmarks/sb3_learning.py < run.json

This file imports nothing of the project. It computes with one thread, as our learner and actor do in this comparison.
The run on the standard input has: env, algorithm, steps, seed, environments, normalises, hyperparameters.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import stable_baselines3
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize


def hyperparameters_of(given: dict[str, Any]) -> dict[str, Any]:
    """Return the algorithm's arguments, with a learning rate ["linear", x] as the function that falls from x to 0."""
    rate = given.get("learning_rate")
    return given | ({"learning_rate": _falling(rate[1])} if isinstance(rate, list) else {})


def _falling(start: float) -> Callable[[float], float]:
    return lambda remaining: start * remaining


def train(run: dict[str, Any]) -> dict[str, Any]:
    """Train, and return episodes [agent steps, raw return, length] and a clock [agent steps, seconds]."""
    environment = make_vec_env(run["env"], n_envs=run["environments"], seed=run["seed"])
    arguments = hyperparameters_of(run["hyperparameters"])
    if run["normalises"]:  # outside the monitor, which keeps raw returns
        environment = VecNormalize(environment, gamma=arguments.get("gamma", 0.99))
    algorithm = getattr(stable_baselines3, run["algorithm"])
    model = algorithm("MlpPolicy", environment, seed=run["seed"], device="cpu", **arguments)
    episodes: list[list[float]] = []
    clock: list[tuple[int, float]] = []
    begun = time.monotonic()

    def watch(seen: dict[str, Any], _: dict[str, Any]) -> bool:
        steps = model.num_timesteps
        ended = [info["episode"] for info in seen["infos"] if "episode" in info]
        if steps <= run["steps"]:
            episodes.extend([steps, float(episode["r"]), int(episode["l"])] for episode in ended)
        if steps // 10_000 > (clock[-1][0] // 10_000 if clock else 0):
            clock.append((steps, round(time.monotonic() - begun, 1)))
        return True

    model.learn(run["steps"], callback=watch)
    return {"episodes": episodes, "clock": clock}


if __name__ == "__main__":
    torch.set_num_threads(1)
    json.dump(train(json.load(sys.stdin)), sys.stdout)

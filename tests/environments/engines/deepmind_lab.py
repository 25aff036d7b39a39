"""Stands in for DeepMind Lab, of which there is no wheel: checks each call against the documented interface.

The documents are docs/users/python_api.md, actions.md and observations.md of github.com/google-deepmind/lab. What is
drawn is no labyrinth, but follows from level, settings, seed, number of the episode and actions, as the engine's does.
"""

import tempfile
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np

LOWEST = np.array([-512, -512, -1, -1, 0, 0, 0])
HIGHEST = np.array([512, 512, 1, 1, 1, 1, 1])
OBSERVATIONS = {"RGB_INTERLEAVED", "RGBD_INTERLEAVED", "INSTR", "VEL.TRANS"}
CONFIG = {
    *("width", "height", "fps", "levelDirectory", "appendCommand", "mixerSeed"),  # the engine's
    *("allowHoldOutLevels", "logLevel", "episodeLengthSeconds", "datasetPath"),  # of its levels
}


class Cache(Protocol):
    def fetch(self, key: str, pk3_path: str) -> bool: ...

    def write(self, key: str, pk3_path: str) -> None: ...


def refuse(what: str) -> NoReturn:
    raise AssertionError(f"deepmind_lab is called in a way that its documents do not know: {what}")


class Lab:
    """One level; `made` and `compiled` tell what tests want to know of all of them."""

    made: list["Lab"] = []  # noqa: RUF012
    compiled: list[str] = []  # noqa: RUF012

    def __init__(
        self,
        level: str,
        observations: list[str],
        config: dict[str, str] | None = None,
        renderer: str = "software",
        level_cache: Cache | None = None,
    ) -> None:
        if not isinstance(level, str) or not isinstance(observations, list) or set(observations) - OBSERVATIONS:
            refuse(f"Lab({level!r}, {observations!r})")
        if level.startswith("missing/"):
            raise RuntimeError(f'Invalid level flag "{level}"')
        config = config or {}
        if set(config) - CONFIG or not all(isinstance(value, str) for value in config.values()):
            refuse(f"config={config!r}")
        if renderer not in ("software", "hardware"):
            refuse(f"renderer={renderer!r}")
        if level.endswith("_test") and config.get("allowHoldOutLevels") != "true":
            raise RuntimeError(f"{level} is held out")
        self.level, self.names, self.config, self.cache = level, observations, config, level_cache
        self.height, self.width = int(config.get("height", "240")), int(config.get("width", "320"))
        self.is_open, self._is_running, self._episode, self.frames = True, False, 0, 0
        Lab.made.append(self)

    def reset(self, episode: int = -1, seed: int | None = None) -> bool:
        self._check_open()
        if type(episode) is not int or not (seed is None or (type(seed) is int and 0 <= seed < 2**31)):
            refuse(f"reset({episode!r}, {seed!r})")
        self._episode = episode if episode >= 0 else self._episode + 1
        told = [*map(ord, self.level + self.config.get("mixerSeed", "")), self._episode]
        self._random = np.random.default_rng(told if seed is None else [*told, seed])
        self._load_map(f"{self.level}.{self._random.integers(3)}")
        self._at, self.frames, self._is_running = self._random.normal(size=4), 0, True
        self._length = int(self._random.integers(300, 900))
        return True

    def _load_map(self, key: str) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "map.pk3")
            if self.cache and self.cache.fetch(key, str(path)):
                if path.read_bytes() != key.encode():
                    refuse(f"the cache gave another map than {key}")
                return
            path.write_bytes(key.encode())
            Lab.compiled.append(key)
            if self.cache:
                self.cache.write(key, str(path))

    def step(self, action: Any, num_steps: int = 1) -> float:
        self._check_open()
        if not self._is_running:
            raise RuntimeError("Environment in wrong status to advance")
        if not isinstance(action, np.ndarray) or action.dtype != np.intc or action.shape != (7,):
            refuse(f"step({action!r})")
        if (action < LOWEST).any() or (action > HIGHEST).any() or type(num_steps) is not int or num_steps < 1:
            refuse(f"step({action!r}, {num_steps!r})")
        reward = 0.0
        for _ in range(num_steps):
            self.frames += 1
            self._at += action[[0, 2, 3, 4]] / 10 + self._random.normal(size=4) / 100
            reward += float(self._random.random() < 0.01)
            self._is_running = self.frames < self._length
            if not self._is_running:
                break
        return reward

    def observations(self) -> dict[str, Any]:
        self._check_open()
        if not self._is_running:
            raise RuntimeError("Environment in wrong status to query observations")
        shape = (self.height, self.width, 3)
        shades = np.arange(np.prod(shape)).reshape(shape) * self._at[0] + self._at[1] * 50 + self._at[2:].sum() * 7
        instruction = "Go to the red hat" if "language" in self.level else ""
        known = {"RGB_INTERLEAVED": (shades % 256).astype(np.uint8), "INSTR": instruction}
        return {name: known[name] for name in self.names}

    def num_steps(self) -> int:
        return self.frames

    def is_running(self) -> bool:
        return self.is_open and self._is_running

    def close(self) -> bool:
        self._check_open()
        self.is_open = False
        return True

    def _check_open(self) -> None:
        if not self.is_open:
            refuse("a call after close()")

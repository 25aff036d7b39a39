"""Makes vector environments of Gymnasium, and reads what they return.

`gymnasium.make_vec` makes them: by the vector entry point of the id (ale-py has one, a function of one's own may call
EnvPool), or else one environment after the other.
"""

import inspect
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode, VectorEnv

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.common.text import one_line
from rainbow_iqn_apex.environments.gymnasium.environment import Exchange, find_spec, reset, step
from rainbow_iqn_apex.environments.interface import EnvironmentSettings, next_row
from rainbow_iqn_apex.memory.rows import Array, Row

_MODES = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)


class Returned:
    """Reads what a vector has returned after one step, for one environment at a time."""

    def __init__(self, made: "MadeVector", step: tuple[Any, Any, Any, Any, dict[str, Any]]) -> None:
        self._made = made
        self._obs, self._rewards, self._terminated, self._truncated, self._infos = step

    def obs(self, env: int) -> Array:
        """Return what an environment shows now: where its episode ended in SAME_STEP, the next one's first."""
        return self._made.exchange.shown(_one(self._made.space, self._obs, env))

    def end(self, env: int) -> str:
        """Return why an environment's episode has ended with this step, empty if it has not."""
        return "game_over" if self._terminated[env] else "time_limit" if self._truncated[env] else ""

    def row(self, env: int) -> Row:
        """Return the row of a step within an episode; where it is LAST with the mode SAME_STEP, not what is shown now.

        Raises RunError for what no replay takes.
        """
        reward, end = self._made.exchange.gained(self._rewards[env]), self.end(env)
        return next_row(self._final_obs(env) if end and self._made.same_step else self.obs(env), reward, end)

    def _final_obs(self, env: int) -> Array:
        """Return the last observation of an episode that has ended in SAME_STEP; raises RunError without one."""
        found = self._infos.get("final_obs")
        if isinstance(found, dict):
            found = _one(self._made.space, found, env)
        elif found is not None:
            found = found[env]
        if found is None:
            raise RunError(
                f"{self._made.name}: an episode has ended in SAME_STEP, and its last observation is missing: expected "
                "it in infos['final_obs']; fix the environment"
            )
        return self._made.exchange.shown(found)


class MadeVector:
    """A vector environment of `count` environments; raises ValueError, in one line, if it cannot be made or played.

    `reset` seeds it. A vector entry point with an argument `seed` gets `seed` instead, for a vector like EnvPool's,
    whose seed is fixed when it is made: a new seed needs a new vector.
    """

    def __init__(self, settings: EnvironmentSettings, count: int, seed: int) -> None:
        self.name, self.count = settings.env.partition(":")[2], count
        if settings.render or settings.record:
            raise RuntimeError(f"{self.name} is a vector environment, which draws nothing")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about packages that will change: who starts a run cannot help that
            self._vector, self.is_seeded = _make(self.name, count, seed)
            self.space, actions = self._vector.single_observation_space, self._vector.single_action_space
        mode = self._vector.metadata.get("autoreset_mode")
        if mode not in _MODES:
            raise ValueError(f"{self.name} cannot be played: expected autoreset NEXT_STEP or SAME_STEP, got {mode}")
        self.same_step = mode == AutoresetMode.SAME_STEP
        self.exchange = Exchange(self.name, self.space, actions, count=count)
        self.spec = self.exchange.spec

    def reset(self, seed: int) -> list[Array]:
        """Begin anew everywhere, and return what each shows."""
        obs = reset(self._vector, None if self.is_seeded else seed, self.name)
        return [self.exchange.shown(_one(self.space, obs, env)) for env in range(self.count)]

    def step(self, actions: Any) -> Returned:
        """Act in all environments."""
        chosen = list(map(self.exchange.native, actions))
        return Returned(self, step(self._vector, np.array(chosen, self._vector.single_action_space.dtype), self.name))

    def close(self) -> None:
        """Close Gymnasium's environment."""
        self._vector.close()


def _make(name: str, count: int, seed: int) -> tuple[VectorEnv[Any, Any, Any], bool]:
    """Make a vector; returns whether its entry point has taken the seed, too."""
    spec = find_spec(name)
    try:
        create = _entry_point(spec)
        taken = inspect.signature(create).parameters if create else {}
        is_seeded = "seed" in taken
        # ale-py clips rewards to their signs by default: scores are of rewards as they are.
        wanted = {"seed": seed, "reward_clipping": False}
        own = {key: value for key, value in wanted.items() if key in taken}
        made = _with_own_spec(spec, partial(create, **own), count) if create else gymnasium.make_vec(spec, count)
    except (gymnasium.error.Error, ImportError, TypeError, OverflowError) as error:
        raise ValueError(f"{name} cannot be made: {one_line(error)}") from error
    if not isinstance(made, VectorEnv) or made.num_envs != count:
        found = f"{type(made).__name__} of {getattr(made, 'num_envs', 'no')} environments"
        raise ValueError(f"{name} cannot be played: expected a VectorEnv of {count} environments, got a {found}")
    return made, is_seeded


def _entry_point(spec: EnvSpec) -> Callable[..., Any] | None:
    entry = spec.vector_entry_point
    return load_env_creator(entry) if isinstance(entry, str) else entry


def _with_own_spec(spec: EnvSpec, create: Callable[..., Any], count: int) -> VectorEnv[Any, Any, Any]:
    """Make a vector that keeps its own `spec`: Gymnasium puts another there, and EnvPool's vectors need theirs."""
    before: list[Any] = []

    def make(**kwargs: Any) -> Any:
        made = create(**kwargs)
        before.append(getattr(made, "spec", None))
        return made

    made = gymnasium.make_vec(replace(spec, vector_entry_point=make), num_envs=count)
    if before[0] is not None:
        made.unwrapped.spec = before[0]
    return made


def _one(space: spaces.Space[Any], batch: Any, env: int) -> Any:
    """Return one environment's observation of a batch."""
    if isinstance(space, spaces.Dict):
        return {name: _one(inner, batch[name], env) for name, inner in space.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_one(inner, part, env) for inner, part in zip(space, batch, strict=True))
    return batch[env]

"""Vector environments of Gymnasium: --env gymnasium-vector:<id>.

`gymnasium.make_vec` makes them: by the vector entry point of the id (ale-py has one, a function of one's own may call
EnvPool), or else one environment after the other. Actors step a `GymnasiumVector` of as many environments as they have;
an evaluation plays a `GymnasiumVectorEnvironment`, a vector with one environment in it.
"""

import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import AutoresetMode, VectorEnv

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.common.seeds import derive_seed
from rainbow_iqn_apex.common.text import one_line
from rainbow_iqn_apex.environments.gymnasium.environment import Exchange, find_spec, reset, step
from rainbow_iqn_apex.environments.interface import EnvironmentSettings, first_row, next_row
from rainbow_iqn_apex.environments.replayed import ReplayedEnvironment
from rainbow_iqn_apex.environments.scores import EpisodeRecord, EpisodeScore
from rainbow_iqn_apex.environments.vector import Restored, Vector, VectorStep
from rainbow_iqn_apex.memory.rows import Array, Arrays, Row, Rows, StepType

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
        reward = self._made.exchange.gained(self._rewards[env])
        end = self.end(env)
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

    `reset` seeds it. A vector entry point with an argument `seed` gets the seed instead, for a vector like EnvPool's,
    whose seed is fixed when it is made: a new seed needs a new vector. `seed` is that of the first reset.
    """

    def __init__(self, settings: EnvironmentSettings, count: int, seed: int) -> None:
        self.name = settings.env.partition(":")[2]
        self.count = count
        if settings.render or settings.record:
            raise RuntimeError(f"{self.name} is a vector environment, which draws nothing")
        self._open(seed)
        self._unused_seed: int | None = seed  # of a vector that has not played yet
        mode = self._vector.metadata.get("autoreset_mode")
        if mode not in _MODES:
            raise ValueError(f"{self.name} cannot be played: expected autoreset NEXT_STEP or SAME_STEP, got {mode}")
        self.same_step = mode == AutoresetMode.SAME_STEP
        self.exchange = Exchange(self.name, self.space, self._vector.single_action_space, count=count)
        self.spec = self.exchange.spec

    def _open(self, seed: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about packages that will change: who starts a run cannot help that
            self._vector, self._is_seeded = _make(self.name, self.count, seed)
            self.space = self._vector.single_observation_space

    def reset(self, seed: int) -> list[Array]:
        """Begin anew everywhere, and return what each shows."""
        if self._is_seeded and seed != self._unused_seed:
            self.close()
            self._open(seed)
        self._unused_seed = None
        obs = reset(self._vector, None if self._is_seeded else seed, self.name)
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


class GymnasiumVectorEnvironment(ReplayedEnvironment):
    """The only environment of a vector. Each episode begins with another seed: with a reset, or a new vector."""

    action_repeat = 1
    pictures_per_second = 30.0  # it draws none

    def __init__(self, settings: EnvironmentSettings, seed: int) -> None:
        super().__init__(settings.env.partition(":")[2], seed)
        self._made = MadeVector(settings, 1, 0)
        self.spec = self._made.spec

    def begin(self, seed: int) -> Row:
        """Begin the episode that a seed decides."""
        return first_row(self._made.reset(seed)[0])

    def play(self, action: int | Array) -> Row:
        """Act once."""
        returned = self._made.step([action])
        self.end = returned.end(0)
        return returned.row(0)

    def pictures(self) -> list[Array]:
        """Return nothing: a vector that is asked for pictures is refused."""
        return []

    def close(self) -> None:
        """Close the vector."""
        self._made.close()


class GymnasiumVector(Vector):
    """Steps a `VectorEnv`, whose environments begin their next episodes themselves.

    With the mode SAME_STEP a step that ends an episode also begins the next one. With NEXT_STEP the vector ignores the
    action after an episode's end, and begins anew: its LAST row is acted on, and a reset takes an agent step, which
    belongs to no episode.

    Gymnasium saves no state of a vector, and one that is played again would need all actions since the start of the
    run. So `restore` begins anew with another seed. The episodes that were running end there as cut off, without a
    record. So a run that was stopped has other episodes than one that was not.
    """

    is_divisible = False

    def __init__(self, settings: EnvironmentSettings, seed: int, count: int) -> None:
        self._seed = seed % 2**63
        self._starts = 0
        self._made = MadeVector(settings, count, self._drawn(1))
        self._first: list[Row] = []  # of episodes that begin after the LAST rows of a restored state
        super().__init__(self._made.spec, [1] * count)

    def reset(self) -> Rows:
        """Begin an episode everywhere; drop running episodes without a record, and use their numbers again."""
        self._rows = self._begin()
        self._first = []
        return Rows.stack(self._rows)

    def _begin(self) -> list[Row]:
        self._starts += 1
        self._scores = [EpisodeScore(1) for _ in range(self.count)]
        return list(map(first_row, self._made.reset(self._drawn(self._starts))))

    def _drawn(self, start: int) -> int:
        """Return the seed of a start, of 31 bits: simulators written in C accept no more."""
        return derive_seed(self._seed, start) >> 1

    def step(self, actions: Sequence[int] | Array, envs: range | None = None) -> VectorStep:
        """Act once in every environment; raises ValueError for a part of them."""
        if envs not in (None, range(self.count)):
            raise ValueError("a vector environment steps all of its environments at once")
        if self._first:
            self._rows, self._first = self._first, []
            return VectorStep(Rows.stack(self._rows), {}, [])
        returned = self._made.step(actions)
        ended: dict[int, Row] = {}
        episodes: list[EpisodeRecord] = []
        for env in range(self.count):
            row = self._row(returned, env)
            if row.step_type == StepType.LAST:
                episodes.append(self._finish(env, returned.end(env)))
                if self._made.same_step:
                    ended[env], row = row, first_row(returned.obs(env))
            self._rows[env] = row
        return VectorStep(Rows.stack(self._rows), ended, episodes)

    def _row(self, returned: Returned, env: int) -> Row:
        if self._rows[env].step_type == StepType.LAST:  # the vector has begun anew, whatever the action was
            return first_row(returned.obs(env))
        row = returned.row(env)
        self._scores[env].add(row.reward)
        return row

    def snapshot(self) -> Arrays:
        """Return `rows.*` [E, ...], `episodes` [E] and `starts` [2] int64: the seed, and how often it was used."""
        return super().snapshot() | {"starts": np.array([self._seed, self._starts], np.int64)}

    def restore(self, arrays: Arrays) -> Restored:
        """Cut off the episodes that were running, and let the next step begin others."""
        self._restore_rows(arrays)
        self._seed, self._starts = arrays["starts"].tolist()
        self._rows = [row._replace(step_type=StepType.LAST) for row in self._rows]
        self._first = self._begin()
        why = f"{self._made.name} cannot be continued: a vector environment saves no state"
        return Restored(Rows.stack(self._rows), (why,) * self.count)

    def close(self) -> None:
        """Close the vector."""
        self._made.close()

"""Several environments stepped together: what an actor asks of them, and those that are made one by one."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.environments.interface import ENDS, Environment, EpisodeLostError, act, gained
from rainbow_iqn_apex.environments.scores import EpisodeRecord, EpisodeScore
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.memory.hindsight import Judge
from rainbow_iqn_apex.memory.rows import Array, Arrays, Row, Rows, StepType, section


class VectorStep(NamedTuple):
    """Rows and episodes after one agent step in each of some environments."""

    rows: Rows  # to act on next
    ended: dict[int, Row]  # the LAST rows of episodes that ended where `rows` has the next FIRST one, by environment
    episodes: list[EpisodeRecord]  # of all episodes that ended


class Restored(NamedTuple):
    """Where environments continue from saved states."""

    rows: Rows  # to act on next; LAST where an episode is cut off
    lost: tuple[str, ...] = ()  # why each of these episodes ends here, as cut off and without a record


class Vector(ABC):
    """Several environments of equal observations that step together.

    An episode's LAST row comes in `ended`, and the next FIRST row in the place of it in `rows`. Where an environment
    takes a step to begin anew, the LAST row itself comes in `rows`, and the action there is ignored.
    """

    is_divisible = True  # whether `step` can step some of them

    def __init__(self, spec: EnvironmentSpec, action_repeats: list[int]) -> None:
        self.spec = spec  # of each
        self.count = len(action_repeats)
        self._action_repeats = action_repeats
        self._rows: list[Row] = []
        self._scores = [EpisodeScore(frames) for frames in action_repeats]
        self._episodes = [0] * self.count  # number of the running episode, per environment

    @property
    def judges(self) -> list[Judge | None]:
        """Return the function of each environment that judges goals; None if it has none."""
        return [None] * self.count

    @abstractmethod
    def reset(self) -> Rows:
        """Begin an episode everywhere; drop running episodes without a record, and use their numbers again."""

    @abstractmethod
    def step(self, actions: Sequence[int] | Array, envs: range | None = None) -> VectorStep:
        """Act once in every environment, or in each of `envs`; `actions` [E, ...]."""

    def _finish(self, env: int, end: str) -> EpisodeRecord:
        """Return the record of an episode that has ended, and begin to count the next one."""
        record = self._scores[env].record(env, self._episodes[env], end)
        self._scores[env] = EpisodeScore(self._action_repeats[env])
        self._episodes[env] += 1
        return record

    def snapshot(self) -> Arrays:
        """Return the state, with which another process goes on: `rows.*` [E, ...], `episodes` [E], and more."""
        arrays: Arrays = {f"rows.{name}": array for name, array in Rows.stack(self._rows)._asdict().items()}
        return arrays | {"episodes": np.array(self._episodes, np.int64)}

    @abstractmethod
    def restore(self, arrays: Arrays) -> Restored:
        """Continue where `snapshot` saved the state of as many environments."""

    def _restore_rows(self, arrays: Arrays) -> None:
        if len(arrays["episodes"]) != self.count:
            raise ValueError(f"a snapshot of {len(arrays['episodes'])} environments for a vector of {self.count}")
        self._episodes = arrays["episodes"].tolist()
        rows = Rows(**section(arrays, "rows."))
        self._rows = [rows.row(env) for env in range(self.count)]

    @abstractmethod
    def close(self) -> None:
        """Close all environments."""


class VectorEnvironment(Vector):
    """Steps E environments that are made one by one.

    vector = VectorEnvironment([make_environment(settings, seed) for seed in seeds])
    rows = vector.reset()
    while True:
        rows, ended, episodes = vector.step(choose(rows))

    Every call is one agent step in each environment. A reset takes none, and none of the `rows` is LAST, but for an
    episode that `restore` cuts off: its next step is a reset.
    """

    def __init__(self, environments: list[Environment]) -> None:
        super().__init__(environments[0].spec, [environment.action_repeat for environment in environments])
        self.environments = environments
        self._form = self.spec.observation.shape, np.dtype(self.spec.observation.dtype)

    @property
    def judges(self) -> list[Judge | None]:
        """Return the function of each environment that judges goals; None if it has none."""
        return [getattr(each, "judge", None) for each in self.environments]

    def reset(self) -> Rows:
        """Begin an episode everywhere; drop running episodes without a record, and use their numbers again."""
        self._rows = [self._begin(env) for env in range(len(self.environments))]
        return Rows.stack(self._rows)

    def step(self, actions: Sequence[int] | Array, envs: range | None = None) -> VectorStep:
        """Act once in every environment, or in each of `envs`; `actions` [E, ...]."""
        ended: dict[int, Row] = {}
        episodes: list[EpisodeRecord] = []
        stepped = range(len(self.environments)) if envs is None else envs
        for env, action in zip(stepped, actions, strict=True):
            environment = self.environments[env]
            if self._rows[env].step_type == StepType.LAST:
                self._rows[env] = self._begin(env)
                continue
            row = self._checked(act(environment, action), StepType.MID, StepType.LAST)
            self._scores[env].add(gained(environment, row))
            if (end := getattr(environment, "end", "")) and row.step_type != StepType.LAST:
                raise UserError(f"--env: `end` is {end!r} after a step that is not LAST; expected it to be empty")
            if row.step_type == StepType.LAST:
                if end not in ENDS:
                    raise UserError(f"--env: an episode has ended, and its `end` is {end!r}; expected one of {ENDS}")
                ended[env] = row._replace(obs=row.obs.copy())  # `reset` may write into the same array
                episodes.append(self._finish(env, end))
                row = self._begin(env)
            self._rows[env] = row
        return VectorStep(Rows.stack([self._rows[env] for env in stepped]), ended, episodes)

    def _begin(self, env: int) -> Row:
        self._scores[env] = EpisodeScore(self._action_repeats[env])
        return self._checked(self.environments[env].reset(), StepType.FIRST)

    def _checked(self, row: Row, *kinds: StepType) -> Row:
        """Return a row of one of these kinds, whose observation is as the spec has it; raises UserError for another."""
        if row.step_type not in kinds:
            what, wanted = ("a step is", "MID or LAST") if len(kinds) > 1 else ("an episode begins with", "FIRST")
            raise UserError(f"--env: {what} {row.step_type!r}, and {wanted} was expected; fix the environment")
        found = getattr(row.obs, "shape", None), getattr(row.obs, "dtype", type(row.obs).__name__)
        if found != self._form:
            told = [f"{form[1]} {form[0]}" for form in (found, self._form)]
            raise UserError(f"--env: an observation is {told[0]}, where the spec has {told[1]}; fix the environment")
        return row

    def snapshot(self) -> Arrays:
        """Return the state, to continue exactly: `rows.*` [E, ...], `episodes` [E]; `env<e>.*`, `score<e>.*`."""
        arrays = super().snapshot()
        for env, (environment, score) in enumerate(zip(self.environments, self._scores, strict=True)):
            arrays |= {f"env{env}.{name}": array for name, array in environment.snapshot().items()}
            arrays |= {f"score{env}.{name}": array for name, array in score.snapshot().items()}
        return arrays

    def restore(self, arrays: Arrays) -> Restored:
        """Continue where `snapshot` saved the state of as many environments; cut off what cannot be continued."""
        self._restore_rows(arrays)
        lost = []
        for env, (environment, score) in enumerate(zip(self.environments, self._scores, strict=True)):
            score.restore(section(arrays, f"score{env}."))
            try:
                environment.restore(section(arrays, f"env{env}."))
            except EpisodeLostError as error:
                self._rows[env] = self._rows[env]._replace(step_type=StepType.LAST)
                lost.append(str(error))
            if getattr(environment, "end", "") and self._rows[env].step_type != StepType.LAST:
                raise ValueError(f"the episode of environment {env} is over, and a snapshot is taken within one")
        return Restored(Rows.stack(self._rows), tuple(lost))

    def close(self) -> None:
        """Close all environments."""
        for environment in self.environments:
            environment.close()

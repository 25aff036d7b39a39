"""What an actor steps of --env gymnasium-vector:<id>: Gymnasium's vector environment, all of it at once."""

from collections.abc import Sequence

import numpy as np

from rainbow_iqn_apex.common.seeds import derive_seed
from rainbow_iqn_apex.environments.gymnasium_vector.made import MadeVector, Returned
from rainbow_iqn_apex.environments.interface import EnvironmentSettings, first_row
from rainbow_iqn_apex.environments.scores import EpisodeRecord, EpisodeScore
from rainbow_iqn_apex.environments.vector import Restored, VectorStep
from rainbow_iqn_apex.memory.hindsight import Judge
from rainbow_iqn_apex.memory.rows import Array, Arrays, Row, Rows, StepType, section


class GymnasiumVector:
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
        self._settings, self.count = settings, count
        self._seed, self._starts = seed % 2**63, 0
        self._made = MadeVector(settings, count, self._drawn(1))
        self.spec, self._is_new = self._made.spec, True
        self._rows: list[Row] = []
        self._first: list[Row] = []  # of episodes that begin after the LAST rows of a restored state
        self._scores = [EpisodeScore(1) for _ in range(count)]
        self._episodes = [0] * count

    @property
    def judges(self) -> list[Judge | None]:
        """Return None for each environment: a vector has no function that judges goals."""
        return [None] * self.count

    def reset(self) -> Rows:
        """Begin an episode everywhere; drop running episodes without a record, and use their numbers again."""
        self._rows, self._first = self._begin(), []
        return Rows.stack(self._rows)

    def _begin(self) -> list[Row]:
        self._starts += 1
        seed = self._drawn(self._starts)
        if self._made.is_seeded and not self._is_new:
            self._made.close()
            self._made = MadeVector(self._settings, self.count, seed)
        self._is_new = False
        self._scores = [EpisodeScore(1) for _ in range(self.count)]
        return list(map(first_row, self._made.reset(seed)))

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

    def _finish(self, env: int, end: str) -> EpisodeRecord:
        record = self._scores[env].record(env, self._episodes[env], end)
        self._scores[env] = EpisodeScore(1)
        self._episodes[env] += 1
        return record

    def snapshot(self) -> Arrays:
        """Return `rows.*` [E, ...], `episodes` [E] and `starts` [2] int64: the seed, and how often it was used."""
        arrays: Arrays = {f"rows.{name}": array for name, array in Rows.stack(self._rows)._asdict().items()}
        arrays["episodes"] = np.array(self._episodes, np.int64)
        return arrays | {"starts": np.array([self._seed, self._starts], np.int64)}

    def restore(self, arrays: Arrays) -> Restored:
        """Cut off the episodes that were running, and let the next step begin others."""
        if len(arrays["episodes"]) != self.count:
            raise ValueError(f"a snapshot of {len(arrays['episodes'])} environments for a vector of {self.count}")
        self._episodes = arrays["episodes"].tolist()
        self._seed, self._starts = arrays["starts"].tolist()
        rows = Rows(**section(arrays, "rows."))
        self._rows = [rows.row(env)._replace(step_type=StepType.LAST) for env in range(self.count)]
        self._first = self._begin()
        why = f"{self._made.name} cannot be continued: a vector environment saves no state"
        return Restored(Rows.stack(self._rows), (why,) * self.count)

    def close(self) -> None:
        """Close the vector."""
        self._made.close()

"""A vector environment of Gymnasium with one environment in it, for evaluations: --env gymnasium-vector:<id>.

Actors step vectors of as many environments as they have: see `vector`.
"""

from rainbow_iqn_apex.environments.gymnasium_vector.made import MadeVector
from rainbow_iqn_apex.environments.interface import EnvironmentSettings, first_row
from rainbow_iqn_apex.environments.replayed import ReplayedEnvironment
from rainbow_iqn_apex.memory.rows import Array, Row


class GymnasiumVectorEnvironment(ReplayedEnvironment):
    """The only environment of a vector. Each episode begins with another seed: with a reset, or a new vector."""

    action_repeat = 1
    pictures_per_second = 30.0  # it draws none

    def __init__(self, settings: EnvironmentSettings, seed: int) -> None:
        super().__init__(settings.env.partition(":")[2], seed)
        self._settings = settings
        self._made = MadeVector(settings, 1, 0)
        self.spec = self._made.spec

    def begin(self, seed: int) -> Row:
        """Begin the episode that a seed decides."""
        if self._made.is_seeded:
            self._made.close()
            self._made = MadeVector(self._settings, 1, seed)
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

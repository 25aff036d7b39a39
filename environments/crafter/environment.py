"""Crafter (Hafner 2022, arXiv 2109.06780): --env crafter:CrafterReward-v1.

Pictures are [3, 64, 64] uint8 in colour, and there are 17 actions, as in the paper: nothing is repeated, sticky or
resized. An achievement earns 1 when it is unlocked for the first time in an episode, and a point of health that is won
or lost 0.1. An episode that reaches 10 000 steps ends as "time_limit"; with that step's own picture.
"""

from typing import Any

import numpy as np

from rainbow_iqn_apex.environments.extras import need
from rainbow_iqn_apex.environments.interface import EnvironmentSettings, first_row, next_row
from rainbow_iqn_apex.environments.replayed import ReplayedEnvironment
from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field
from rainbow_iqn_apex.memory.rows import Array, Row

NAME = "CrafterReward-v1"
_CHOICE = Discrete(17)
_FILMED = 540  # pixels: the world's nine fields are whole ones


class CrafterEnvironment(ReplayedEnvironment):
    """One world after the other. The engine saves no state, so a state is replayed actions, some 2 ms each."""

    spec = EnvironmentSpec(Field((3, 64, 64), "uint8"), _CHOICE)
    action_repeat = 1
    pictures_per_second = 10.0

    def __init__(self, settings: EnvironmentSettings, seed: int) -> None:
        super().__init__(settings.env.partition(":")[2], seed)
        check_name(self.name)
        need("crafter", self.name)
        if settings.render:
            raise RuntimeError("cannot render: Crafter has no window here; films can be recorded")
        self._engine = _engine()
        self._record = settings.record

    def begin(self, seed: int) -> Row:
        """Begin the episode that a seed decides, in a world of its own."""
        self._engine._seed = seed
        self._engine._episode = 0
        return first_row(_seen(self._engine.reset()))

    def play(self, action: int | Array) -> Row:
        """Act once."""
        picture, reward, is_over, info = self._engine.step(_CHOICE.number(action))
        self.end = ("time_limit" if info["discount"] else "game_over") if is_over else ""
        return next_row(_seen(picture), float(reward), self.end)

    def pictures(self) -> list[Array]:
        """Return the picture for people that the last step led to.

        The noise of the night is drawn from the world's random numbers, which continue as if there had been no picture.
        """
        if not self._record:
            return []
        random = self._engine._world.random
        state = random.get_state()
        picture = np.array(self._engine.render((_FILMED, _FILMED)), np.uint8)
        random.set_state(state)
        return [picture]

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""


def _engine() -> Any:
    """Make Crafter's engine, in which nothing depends on where its objects lie in memory."""
    import crafter

    class Engine(crafter.Env):  # type: ignore[misc]
        def _balance_chunk(self, chunk: Any, objs: Any) -> None:
            # Creatures appear and vanish by draws from a set, whose order differs in each process: sort by their birth.
            super()._balance_chunk(chunk, [each for each in self._world.objects if each in objs])

    return Engine(seed=0)


def _seen(picture: Any) -> Array:
    return np.ascontiguousarray(np.asarray(picture, np.uint8).transpose(2, 0, 1))  # [3, 64, 64]


def check_name(name: str) -> None:
    """Raise ValueError for a name that no environment has."""
    if name != NAME:
        raise ValueError(f"crafter has no environment {name!r}; there is {NAME}")

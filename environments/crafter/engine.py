"""Crafter's engine, in which nothing depends on where its objects lie in memory."""

from typing import Any

import crafter


class Engine(crafter.Env):  # type: ignore[misc]
    """One world; `begin` decides all that follows."""

    def __init__(self) -> None:
        super().__init__(seed=0)

    def begin(self, seed: int) -> Any:
        """Return the first picture [64, 64, 3] of the episode that a seed decides."""
        self._seed, self._episode = seed, 0
        return self.reset()

    def drawn(self, pixels: int) -> Any:
        """Return the present picture with sides of so many pixels.

        The noise of the night is drawn from the world's random numbers, which go on as if there had been no picture.
        """
        state = self._world.random.get_state()
        picture = self.render((pixels, pixels))
        self._world.random.set_state(state)
        return picture

    def _balance_chunk(self, chunk: Any, objs: Any) -> None:
        """Let creatures of a part of the world appear and vanish, drawn from them in the order of their birth.

        The engine would draw from a set, whose order differs in each process.
        """
        super()._balance_chunk(chunk, [each for each in self._world.objects if each in objs])

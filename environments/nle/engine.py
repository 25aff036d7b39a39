"""NLE's engine, NetHack itself, each with random numbers of its own seed and nothing that the calendar decides."""

import signal
import sys
import threading
from typing import Any

import numpy as np
from nle.env import tasks

from rainbow_iqn_apex.memory.rows import Array

_SHOWN = ("glyphs", "blstats", "message")
_IGNORED = ("SIGHUP", "SIGXCPU")  # by NetHack, from the end of a game on


class Engine:
    """One game after the other of a task."""

    def __init__(self, task: str, *, draws: bool) -> None:
        self._task: Any = getattr(tasks, task)(
            observation_keys=_SHOWN,
            max_episode_steps=sys.maxsize,  # at its limit, the engine shows what is left of a game that it has quit
            fix_moon_phase=True,  # else moon and hour are those of the machine's clock
            render_mode="pixel" if draws else "human",  # the latter draws if it is asked to, and it is not
        )
        self.nb_actions = int(self._task.action_space.n)

    def begin(self, seed: int) -> dict[str, Array]:
        """Return what is seen first of the game that a seed decides."""
        self._task.nethack.set_initial_seeds(seed, seed, reseed=False)
        seen, _ = self._task.reset()
        return dict(seen)

    def act(self, action: int) -> tuple[dict[str, Array], float, bool]:
        """Act once; returns what is seen then, in arrays that the next action writes to, the reward, and the end."""
        seen, reward, is_over, _, _ = self._task.step(action)
        if is_over and threading.current_thread() is threading.main_thread():
            for number in (signal.Signals[name] for name in _IGNORED):
                if (handler := signal.getsignal(number)) is not None:
                    signal.signal(number, handler)
        return seen, float(reward), bool(is_over)

    def drawn(self) -> Array:
        """Return the map as NetHack's tiles [336, 1264, 3], a new array."""
        return np.array(self._task.render(), np.uint8)

    def close(self) -> None:
        """End the game, and remove its folder."""
        self._task.close()

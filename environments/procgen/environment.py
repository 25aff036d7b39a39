"""Procgen: sixteen games whose levels are drawn (Cobbe et al. 2020, arXiv 1912.01588): --env procgen:coinrun.

Pictures are [3, 64, 64] uint8 in colour, and there are 15 actions, as in the paper: nothing is repeated, sticky or
resized. The engine shows no picture of an episode's end but the next level's first one, so the LAST row repeats the
picture before it, which nothing is learned from. An episode that reaches the game's limit of steps (500 to 6000) ends
as "time_limit", with its own last picture.
"""

from types import MappingProxyType

import numpy as np

from rainbow_iqn_apex.common.text import nearest, suggestion
from rainbow_iqn_apex.environments.extras import need
from rainbow_iqn_apex.environments.interface import EnvironmentSettings, first_row, next_row
from rainbow_iqn_apex.environments.procgen.engine import NB_ACTIONS, RESET, SIZE, Engine, Shown
from rainbow_iqn_apex.environments.procgen.options import ProcgenOptions
from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field
from rainbow_iqn_apex.memory.rows import Array, Arrays, Row

GAMES = tuple(
    "bigfish bossfight caveflyer chaser climber coinrun dodgeball fruitbot heist jumper leaper maze miner ninja "
    "plunder starpilot".split()
)
# What the engine plays of each mode; it ends the process at any other game.
_MODES = MappingProxyType({"easy": 0, "hard": 1, "extreme": 2, "memory": 10})
_GAMES_OF_MODE = {
    "extreme": ("chaser", "dodgeball", "leaper", "starpilot"),
    "memory": ("caveflyer", "dodgeball", "heist", "jumper", "maze", "miner"),
}
_EXPLORATION = {  # the level of each game that is hard to explore, from the package's env.py
    "coinrun": 1949448038,
    "caveflyer": 1259048185,
    "leaper": 1318677581,
    "jumper": 1434825276,
    "maze": 158988835,
    "heist": 876640971,
    "climber": 1561126160,
    "ninja": 1123500215,
}
ENDS = ("", "game_over", "time_limit")
_CHOICE = Discrete(NB_ACTIONS)


class ProcgenEnvironment:
    """One game of Procgen. The engine saves its whole state, so an episode goes on at once and exactly."""

    spec = EnvironmentSpec(Field((3, SIZE, SIZE), "uint8"), _CHOICE)
    action_repeat = 1
    pictures_per_second = 15.0

    def __init__(self, settings: EnvironmentSettings, seed: int) -> None:
        game = settings.env.partition(":")[2]
        assert isinstance(settings.own, ProcgenOptions)
        levels = _levels(game, settings.own)
        need("procgen", f"procgen:{game}")
        if settings.render:
            raise RuntimeError("cannot render: Procgen has no window; films can be recorded")
        self.end = ""
        self._record = settings.record
        self._engine = Engine(game, seed, levels, settings.record)
        self._shown = self._engine.show()
        self._steps = 0  # of this episode
        self._is_fresh = True  # the engine shows the first picture of a level that no episode has begun on

    def reset(self) -> Row:
        """Begin an episode on the next level that is drawn."""
        self._shown = self._engine.show() if self._is_fresh else self._engine.act(RESET)
        self._steps, self.end, self._is_fresh = 0, "", False
        return first_row(_seen(self._shown))

    def step(self, action: int | Array) -> Row:
        """Act once."""
        action = _CHOICE.number(action)
        if self.end or self._is_fresh:
            raise ValueError("no episode is running: reset first")
        before, self._shown = self._shown, self._engine.act(action)
        self._steps += 1
        if self._shown.begun:
            self.end, self._is_fresh = "game_over", True
        elif self._steps >= self._engine.steps_limit:
            self.end = "time_limit"
        return next_row(_seen(before if self._is_fresh else self._shown), self._shown.reward, self.end)

    def pictures(self) -> list[Array]:
        """Return the picture for people, of 512 x 512 pixels, that the last step led to."""
        return [self._engine.drawn()] if self._record else []

    def snapshot(self) -> Arrays:
        """Return `state` [n] uint8, the engine's, and `counters` [3] int64."""
        counters = [self._steps, ENDS.index(self.end), self._is_fresh]
        return {"state": np.frombuffer(self._engine.state(), np.uint8), "counters": np.array(counters, np.int64)}

    def restore(self, arrays: Arrays) -> None:
        """Continue exactly where `snapshot` saved a state of the same game and options."""
        self._engine.go_on_from(arrays["state"].tobytes())
        self._shown = self._engine.show()
        self._steps, end, is_fresh = arrays["counters"].tolist()
        self.end, self._is_fresh = ENDS[end], bool(is_fresh)

    def close(self) -> None:
        """Give the engine's memory back."""
        self._engine.close()


def _seen(shown: Shown) -> Array:
    return np.ascontiguousarray(shown.picture.transpose(2, 0, 1))  # [3, 64, 64]


def check_name(game: str) -> None:
    """Raise ValueError for a name that no game has."""
    if game not in GAMES:
        hint = suggestion(nearest(game, GAMES, 2), f"there are {', '.join(GAMES)}")
        raise ValueError(f"procgen knows no game {game!r}; {hint}")


def _levels(game: str, options: ProcgenOptions) -> dict[str, int]:
    """Return which levels the engine is to draw; raises ValueError for a name or a mode that it does not know."""
    check_name(game)
    mode = options.procgen_mode
    having = _EXPLORATION if mode == "exploration" else _GAMES_OF_MODE.get(mode, GAMES)
    if game not in having:
        raise ValueError(f"--procgen-mode: {game} has no levels of mode {mode}, which {', '.join(having)} have")
    if mode == "exploration":
        return {"num_levels": 1, "start_level": _EXPLORATION[game], "distribution_mode": _MODES["hard"]}
    return {
        "num_levels": options.procgen_num_levels,
        "start_level": options.procgen_start_level,
        "distribution_mode": _MODES[mode],
    }

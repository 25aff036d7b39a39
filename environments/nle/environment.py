"""Tasks of the NetHack Learning Environment (Küttler et al. 2020, arXiv 2006.13760): --env nle:NetHackScore-v0.

An observation is the map's glyphs [21, 79], which are symbols, the 27 numbers of the bottom lines, and the first words
of the message. The numbers go from conditions of 0 and 1 to scores of thousands, so they are seen as sign(x) log(1 +
|x|). The hero, the rewards and the limit of 5000 steps are NLE's own. What the limit ends is cut off.
"""

import signal
import sys
import threading
from typing import Any

import numpy as np

from rainbow_iqn_apex.common.text import nearest, suggestion
from rainbow_iqn_apex.environments.extras import need
from rainbow_iqn_apex.environments.interface import EnvironmentSettings, first_row, next_row
from rainbow_iqn_apex.environments.replayed import ReplayedEnvironment
from rainbow_iqn_apex.environments.words import numbered, text_field
from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field, Part, pack, packed
from rainbow_iqn_apex.memory.rows import Array, Row

# Without NetHackChallenge-v0, whose seeds nobody may set: no episode of it could be played again.
TASKS = tuple(f"NetHack{task}-v0" for task in "Score Staircase StaircasePet Oracle Gold Eat Scout".split())
LIMIT = 5000  # steps
GLYPHS = 5976  # and one more that stands for none
_NUMBERS = (
    "x y strength_percentage strength dexterity constitution intelligence wisdom charisma score hit_points "
    "most_hit_points depth gold energy most_energy armour_class monster_level experience_level experience_points time "
    "hunger carrying_capacity dungeon level condition alignment"
).split()
_MAP = Field((21, 79), "int16", vocabulary=GLYPHS + 1)
_ROW = Field((len(_NUMBERS),), "float32")
_MESSAGE = text_field(16)


class NleEnvironment(ReplayedEnvironment):
    """One task of NLE. The engine's seeds decide all that follows, and it saves no state that goes on in the same way.

    A state is replayed actions, some 0.2 ms each.
    """

    action_repeat = 1
    pictures_per_second = 10.0

    def __init__(self, settings: EnvironmentSettings, seed: int) -> None:
        super().__init__(settings.env.partition(":")[2], seed)
        check_name(self.name)
        need("nle", self.name)
        if settings.render:
            raise RuntimeError("cannot render: NLE has no window; films can be recorded")
        from nle.env import tasks

        self._task: Any = getattr(tasks, self.name.removesuffix("-v0"))(
            observation_keys=("glyphs", "blstats", "message"),
            max_episode_steps=sys.maxsize,  # at its limit, the engine shows what is left of a game that it has quit
            fix_moon_phase=True,  # else moon and hour are those of the machine's clock
            render_mode="pixel" if settings.record else "human",  # the latter draws if it is asked to, and it is not
        )
        self._record = settings.record
        self._choice = Discrete(int(self._task.action_space.n))
        self.spec = EnvironmentSpec(
            packed(_MAP, _ROW, _MESSAGE),
            self._choice,
            tuple(Part(name, place, place + 1) for place, name in enumerate(_NUMBERS)),
        )

    def begin(self, seed: int) -> Row:
        """Begin the game that a seed decides."""
        self._task.nethack.set_initial_seeds(seed, seed, reseed=False)
        seen, _ = self._task.reset()
        return first_row(_packed(seen))

    def play(self, action: int | Array) -> Row:
        """Act once."""
        seen, reward, is_over, _, _ = self._task.step(self._choice.number(action))
        if is_over and threading.current_thread() is threading.main_thread():
            _heed_signals()
        self.end = "game_over" if is_over else "time_limit" if self.steps == LIMIT else ""
        return next_row(_packed(seen), float(reward), self.end)

    def pictures(self) -> list[Array]:
        """Return the map that the last step led to, of 1264 x 336 pixels."""
        return [np.array(self._task.render(), np.uint8)] if self._record else []

    def close(self) -> None:
        """End the game, and remove its folder."""
        self._task.close()


def _heed_signals() -> None:
    """Set the handlers again of signals that NetHack ignores from the end of a game on."""
    for number in (signal.SIGHUP, signal.SIGXCPU):
        if (handler := signal.getsignal(number)) is not None:
            signal.signal(number, handler)


def _packed(seen: dict[str, Array]) -> Array:
    row = seen["blstats"].astype(np.float64)
    message = seen["message"].tobytes().split(b"\0")[0].decode("ascii", "replace")
    return pack(
        [seen["glyphs"], (np.sign(row) * np.log1p(np.abs(row))).astype(np.float32), numbered(message, _MESSAGE)]
    )


def check_name(name: str) -> None:
    """Raise ValueError for a name that no task has."""
    if name in TASKS:
        return
    close = nearest(name, TASKS, 2)
    raise ValueError(f"nle has no task {name!r}; {suggestion(close, 'there are: ' + ', '.join(TASKS))}")

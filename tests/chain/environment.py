"""A stochastic chain of five states whose return distributions are known, as an environment of the run.

              action 0: 0          any: -1 or 3            any: 0 or 1
    start ------------------> gamble ------------> last chance ------------> end     returns -1, 0, 3, 4: mean 1.5
          \\ action 1: 1                any: 0
           ----------------> safe ----------------------------------------> end     return 1
          \\ action 2: -1
           ---------------------------------------------------------------> end     return -1

Rewards in pairs come with probability 1/2 each. Only the first action matters, so n-step returns are never off-policy.
"""

import json

import numpy as np

from rainbow_iqn_apex.environments.interface import EnvironmentSettings
from rainbow_iqn_apex.environments.registry import ENVIRONMENTS, Entry
from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field
from rainbow_iqn_apex.memory.rows import Array, Arrays, Row, StepType

START, GAMBLE, LAST_CHANCE, SAFE, END = range(5)
RETURNS = {0: (-1, 0, 3, 4), 1: (1,), 2: (-1,)}  # equally likely, per first action; no discount


class ChainEnvironment:
    spec = EnvironmentSpec(Field((5,), "uint8"), Discrete(3))
    action_repeat = 4
    pictures_per_second = 60.0

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._state = START
        self.end = ""

    def reset(self) -> Row:
        self._state = START
        return Row(one_hot(START), StepType.FIRST, 0.0, 1.0)

    def step(self, action: int | Array) -> Row:
        coin = int(self._random.integers(2))
        match self._state:
            case 0:
                self._state, reward = ((GAMBLE, 0), (SAFE, 1), (END, -1))[int(action)]
            case 1:
                self._state, reward = LAST_CHANCE, (-1, 3)[coin]
            case 2:
                self._state, reward = END, coin
            case _:
                self._state, reward = END, 0
        over = self._state == END
        self.end = "game_over" if over else ""
        return Row(one_hot(self._state), StepType.LAST if over else StepType.MID, float(reward), 0.0 if over else 1.0)

    def pictures(self) -> list[Array]:
        return []

    def snapshot(self) -> Arrays:
        state = json.dumps(self._random.bit_generator.state).encode()
        return {"state": np.array(self._state, np.int64), "random": np.frombuffer(state, np.uint8)}

    def restore(self, arrays: Arrays) -> None:
        self._state = int(arrays["state"])
        self._random.bit_generator.state = json.loads(arrays["random"].tobytes())

    def close(self) -> None:
        pass


def one_hot(state: int) -> Array:
    row = np.zeros(5, np.uint8)
    row[state] = 255
    return row


def make(_settings: EnvironmentSettings, seed: int) -> ChainEnvironment:
    """Make one, as `ENVIRONMENTS` asks for."""
    return ChainEnvironment(seed)


ENVIRONMENTS["chain"] = Entry("tests.chain.environment:make")

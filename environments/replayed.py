"""The base of environments that can save no state: an episode is its seed and the actions since its reset."""

from abc import ABC, abstractmethod
from typing import Any, NoReturn

import numpy as np

from rainbow_iqn_apex.common.errors import RunError, Stopped, UserError
from rainbow_iqn_apex.common.seeds import derive_seed
from rainbow_iqn_apex.common.text import counted, name_error
from rainbow_iqn_apex.environments.interface import EpisodeLostError
from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, MultiDiscrete, unpack
from rainbow_iqn_apex.memory.rows import Array, Arrays, Row


class ReplayedEnvironment(ABC):
    """Saves and restores by playing an episode's actions again.

    A class that derives from this one sets `spec`, and defines `begin` and `play`. `begin(seed)` must decide all that
    follows. Each episode gets a seed of its own, made from the environment's seed and the episode's number. `snapshot`
    saves these two together with the actions since the reset, and `restore` plays the actions again. Such a state is
    short, mostly a byte per choice, and four per number of a Box. It does not depend on where random numbers come from.
    Restoring takes as long as the episode has taken to play. `restore` raises EpisodeLostError if `begin` does not keep
    its promise: in an environment that draws from elsewhere, or carries something over from one episode to the next, or
    in one whose rounding errors grow, as those of MuJoCo do, on a machine that rounds in another way.
    """

    spec: EnvironmentSpec
    end: str = ""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name  # in messages
        self.episode = 0  # number of the running episode, from 1; 0: none has begun
        self.steps = 0  # since the reset
        self._seed = seed % 2**63
        self._actions: list[Any] = []  # of this episode, as the agent chose them
        self._obs = np.zeros(0)  # the newest

    @abstractmethod
    def begin(self, seed: int) -> Row:
        """Begin the episode that a seed of 31 bits decides."""

    @abstractmethod
    def play(self, action: Any) -> Row:
        """Act once, and set `end` if that ends the episode."""

    def reset(self) -> Row:
        """Begin an episode, with a seed of its own."""
        self.episode += 1
        return self._begin()

    def _begin(self) -> Row:
        self._actions = []
        self.steps = 0
        self.end = ""
        row = self.begin(derive_seed(self._seed, self.episode) >> 1)  # simulators written in C accept 31 bits
        self._obs = row.obs
        return row

    def step(self, action: int | Array) -> Row:
        """Act once; raises ValueError where no episode is running, or for what is no action."""
        if self.end or not self.episode:
            raise ValueError("no episode is running: reset first")
        self.steps = len(self._actions) + 1  # a refused action does not count
        chosen = np.array(action, self.spec.action.field.dtype)  # before it is scaled in place
        row = self.play(action)
        self._actions.append(chosen if chosen.ndim else chosen.item())  # an array of one number takes over 100 bytes
        self._obs = row.obs
        return row

    def snapshot(self) -> Arrays:
        """Return `episode` [2] int64, seed and number; `actions` [steps, ...] as the agent chose them; `obs`.

        The actions are uint8 or float32; int32 if one is a choice among more than 256.
        """
        shape = (len(self._actions), *self.spec.action.field.shape)
        observation = self.spec.observation
        return {
            "episode": np.array([self._seed, self.episode], np.int64),
            "actions": np.array(self._actions, _stored(self.spec)).reshape(shape),
            "obs": self._obs.copy() if self.episode else np.zeros(observation.shape, observation.dtype),
        }

    def restore(self, arrays: Arrays) -> None:
        """Play the saved episode again; raises EpisodeLostError if that leads elsewhere."""
        begun = self.episode
        self._seed, self.episode = arrays["episode"].tolist()
        if not self.episode:
            if begun:
                raise ValueError("a snapshot from before the first episode")
            return
        field = self.spec.action.field
        actions = arrays["actions"].astype(field.dtype)
        if actions.shape[1:] != field.shape:
            raise ValueError(f"actions of shape {actions.shape[1:]} instead of {field.shape}")
        try:
            self._begin()
            for action in actions:
                if self.end:
                    break
                self.step(action)
        except (RunError, UserError, Stopped):
            raise  # of an engine that has died, for instance
        except Exception as error:  # noqa: BLE001 - other people's code, in a situation in which it never was
            self._deny(f"failed at step {self.steps} of {len(actions)} ({name_error(error)})")
        if self.steps < len(actions):
            self._deny(f"ended after {self.steps} of {len(actions)} steps")
        # Not to the last bit: on another machine, a sine may be rounded differently.
        found, saved = (unpack(self.spec.observation, obs) for obs in (self._obs, arrays["obs"]))
        if not all(np.allclose(*pair, rtol=1e-3, atol=1e-4, equal_nan=True) for pair in zip(found, saved, strict=True)):
            self._deny(f"led elsewhere within {counted(self.steps, 'step')}")

    def _deny(self, what: str) -> NoReturn:
        raise EpisodeLostError(
            f"{self.name} cannot be continued: played again with the same seed and actions, the episode {what}; "
            "the environment is another version of itself, or its seed does not decide everything"
        )


def _stored(spec: EnvironmentSpec) -> np.dtype[Any]:
    """Return a dtype of few bytes that holds an action exactly."""
    match spec.action:
        case Discrete(count):
            most = count
        case MultiDiscrete(counts):
            most = max(counts)
        case _:
            return np.dtype(np.float32)
    return np.dtype(np.uint8 if most <= 256 else np.int32)

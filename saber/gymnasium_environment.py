"""Environments of Gymnasium (farama.org) with discrete actions: --env gymnasium:CartPole-v1.

The id is Gymnasium's own, version included; an environment that another package registers has the package's module in
front, as in gymnasium:ale_py:ALE/Pong-v5. An episode that Gymnasium calls truncated ends as "time_limit", whatever the
reason was. An episode that is both truncated and terminated is over ("game_over").

What a network gets as an observation:
- images, which are uint8 Boxes [H, W], [H, W, 1] or [H, W, 3] of at least 16x16: grey, 84x84, uint8;
- any other Box, such as a vector, a board of int8 or an image of floats: its numbers in one row, float32, unscaled;
  bytes that go up to 255 stay uint8, which networks take for fractions;
- Discrete: one-hot, float32.
"""

import difflib
import importlib
import textwrap
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import cv2
import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from memory.environment_spec import Discrete, EnvironmentSpec, Field
from memory.errors import RunError
from memory.rows import Array, Arrays, Row, StepType
from saber.display import check_display
from saber.environment import EnvironmentSettings

SIZE = 84  # pixels
SMALLEST_IMAGE = 16  # pixels: fewer rows or columns of bytes are a board, whose symbols would not survive resizing


class GymnasiumEnvironment:
    """One environment of Gymnasium.

    The environment has its own time step: `action_repeat` is 1 whatever the settings are, and nothing is sticky.

    Gymnasium promises that `reset(seed=...)` decides all that follows, and can save no state. So each episode gets a
    seed of its own, made from the environment's seed and the episode's number. `snapshot` saves these two together with
    the actions since the reset, and `restore` plays the actions again. Such a state is short (a byte per action,
    mostly), and does not depend on where random numbers come from. Restoring takes as long as the episode has taken to
    play: some 10 µs per step of CartPole. `restore` raises RunError if the promise is not kept: by an environment that
    draws from elsewhere, or carries something over from one episode to the next.
    """

    action_repeat = 1

    def __init__(self, settings: EnvironmentSettings, seed: int) -> None:
        self._id = settings.env.partition(":")[2]
        self._environment = _open(self._id, settings)
        self._record = settings.record
        self.pictures_per_second = float(self._environment.metadata.get("render_fps") or 30)
        try:
            view = view_of(self._environment.observation_space)
            self._first_action, self._nb_actions = _actions_of(self._environment.action_space)
        except ValueError as error:
            raise ValueError(f"{self._id} cannot be played: {error}") from error
        self.spec = EnvironmentSpec(Field(view.shape, view.dtype.name), Discrete(self._nb_actions))
        self._show = view.show
        self._action_dtype = np.dtype(np.uint8 if self._nb_actions <= 256 else np.int32)
        self._seed = seed % 2**63
        self._episode = 0  # number of the running episode, from 1; 0: none has begun
        self._actions: list[int] = []  # of this episode
        self._obs = np.zeros(view.shape, view.dtype)  # the newest
        self.end = ""
        if settings.render or settings.record:
            self._try_to_draw()

    def reset(self) -> Row:
        """Begin an episode, with a seed of its own."""
        self._episode += 1
        return self._begin()

    def _begin(self) -> Row:
        obs, _ = self._environment.reset(seed=self._episode_seed())
        self._actions = []
        self.end = ""
        self._obs = self._show(obs)
        return Row(self._obs, StepType.FIRST, 0.0, 1.0)

    def _episode_seed(self) -> int:
        draw = np.random.SeedSequence([self._seed, self._episode]).generate_state(1)[0]
        return int(draw) >> 1  # 31 bits: simulators written in C accept no more

    def step(self, action: int | Array) -> Row:
        """Act for one of the environment's own time steps."""
        action = int(action)
        if self.end or not self._episode or not 0 <= action < self._nb_actions:
            running = self._episode and not self.end
            raise ValueError(f"no such action: {action}" if running else "no episode is running: reset first")
        obs, reward, terminated, truncated, _ = self._environment.step(self._first_action + action)
        self._actions.append(action)
        self._obs = self._show(obs)
        self.end = "game_over" if terminated else "time_limit" if truncated else ""
        step_type = StepType.LAST if self.end else StepType.MID
        return Row(self._obs, step_type, float(reward), 0.0 if terminated else 1.0)

    def snapshot(self) -> Arrays:
        """Return `episode` [2] int64, seed and number; `actions` [steps], uint8 if 256 values suffice; `obs`."""
        return {
            "episode": np.array([self._seed, self._episode], np.int64),
            "actions": np.array(self._actions, self._action_dtype),
            "obs": self._obs.copy(),
        }

    def restore(self, arrays: Arrays) -> None:
        """Play the saved episode again; raises RunError if that leads elsewhere."""
        begun = self._episode
        self._seed, self._episode = arrays["episode"].tolist()
        if not self._episode:
            if begun:
                raise ValueError("a snapshot from before the first episode")
            return
        self._begin()
        for action in arrays["actions"].tolist():
            if self.end:
                self._deny(f"ended after {len(self._actions)} of {len(arrays['actions'])} steps")
            self.step(action)
        # Not to the last bit: on another machine, a sine may be rounded differently.
        if not np.allclose(self._obs, arrays["obs"], rtol=1e-3, atol=1e-4, equal_nan=True):
            self._deny(f"led elsewhere within {len(self._actions)} steps")

    def _deny(self, what: str) -> None:
        raise RunError(
            f"{self._id} cannot be continued: played again with the same seed and actions, the episode {what}; "
            "the environment is another version of itself, or its seed does not decide everything"
        )

    def pictures(self) -> list[Array]:
        """Return one picture, of what the last step led to."""
        return [np.array(self._environment.render(), np.uint8)] if self._record else []

    def _try_to_draw(self) -> None:
        """Draw once, to fail now if anything for drawing is missing; the next reset begins anew."""
        try:
            self._environment.reset(seed=0)
            picture: Any = self._environment.render() if self._record else None
            if self._record and np.ndim(picture) != 3:
                raise RuntimeError(f"cannot record {self._id}: it draws no pictures in colour")
        except (gymnasium.error.Error, ImportError) as error:
            doing = "record" if self._record else "render"
            raise RuntimeError(f"cannot {doing} {self._id}: {_one_line(error)}") from error

    def close(self) -> None:
        """Close Gymnasium's environment, and its window."""
        self._environment.close()


def _open(id_: str, settings: EnvironmentSettings) -> gymnasium.Env[Any, Any]:
    """Make Gymnasium's environment; raises ValueError, in one line, if that is impossible."""
    if settings.render:
        check_display()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about packages that will change: a person who starts a run cannot help that
        spec = _find(id_)
        mode = "human" if settings.render else "rgb_array" if settings.record else ""
        drawing: dict[str, Any] = {"render_mode": mode} if mode else {}  # not all environments accept the argument
        try:
            # Without the checker, which looks at every step for mistakes in the environment's code.
            return gymnasium.make(spec, disable_env_checker=True, **drawing)
        except (gymnasium.error.Error, ImportError, TypeError) as error:
            raise ValueError(f"{id_} cannot be made: {_one_line(error)}") from error


def _find(id_: str) -> EnvSpec:
    """Find exactly this id: without a version, Gymnasium would take the newest: one id would mean several things."""
    if not id_:
        raise ValueError("gymnasium needs an id, as in gymnasium:CartPole-v1")
    module, _, name = id_.rpartition(":")
    if module:
        _import(module)
    if name in gymnasium.registry:
        return gymnasium.registry[name]
    known = {known.lower(): known for known in gymnasium.registry}
    close = difflib.get_close_matches(name.lower(), known, n=3)
    hint = "one of another package has its module in front, as in gymnasium:ale_py:ALE/Pong-v5"
    if close:
        hint = f"did you mean {' or '.join(known[key] for key in close)}?"
    raise ValueError(f"gymnasium knows no environment {name!r}; {hint}")


def _import(module: str) -> None:
    """Import a module, for the environments that it registers."""
    try:
        importlib.import_module(module)
    except (ImportError, ValueError, TypeError) as error:  # the latter two for names with stray colons and dots
        raise ValueError(f"cannot import {module!r}: {_one_line(error)}") from error


def _one_line(what: object) -> str:
    return textwrap.shorten(str(what), 300)


class View(NamedTuple):
    """Observations of a space as a network gets them."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    show: Callable[[Any], Array]  # an observation as a new array of this shape and type


def view_of(space: spaces.Space[Any]) -> View:
    """Return how a network gets a space's observations; raises ValueError for spaces other than Box and Discrete."""
    if isinstance(space, spaces.Discrete):
        return _one_hot(int(space.start), int(space.n))
    if not isinstance(space, spaces.Box):
        raise ValueError(f"observations must be Box or Discrete, not {_one_line(space)}")
    if is_image(space):
        return View((SIZE, SIZE), np.dtype(np.uint8), _grey)
    bytes_ = space.dtype == np.uint8 and space.high.max() == 255
    return _flat(max(1, int(np.prod(space.shape))), np.dtype(np.uint8 if bytes_ else np.float32))


def is_image(space: spaces.Box) -> bool:
    """Return whether a space has images: bytes in rows and columns, with one or three colours last, if any."""
    colours = space.shape[2:]
    return (
        space.dtype == np.uint8
        and len(space.shape) >= 2
        and min(space.shape[:2]) >= SMALLEST_IMAGE
        and colours in ((), (1,), (3,))
    )


def _grey(obs: Array) -> Array:
    if obs.ndim == 3:
        obs = cv2.cvtColor(obs, cv2.COLOR_RGB2GRAY) if obs.shape[2] == 3 else obs[:, :, 0]
    return cv2.resize(obs, (SIZE, SIZE), interpolation=cv2.INTER_LINEAR)  # [84, 84] uint8, a new array


def _flat(length: int, dtype: np.dtype[Any]) -> View:
    return View((length,), dtype, lambda obs: np.array(obs, dtype).reshape(length))


def _one_hot(start: int, n: int) -> View:
    def show(obs: Any) -> Array:
        row = np.zeros(n, np.float32)
        row[int(obs) - start] = 1
        return row

    return View((n,), np.dtype(np.float32), show)


def _actions_of(space: spaces.Space[Any]) -> tuple[int, int]:
    """Return the first action's number, and how many actions there are; raises ValueError if not Discrete."""
    if not isinstance(space, spaces.Discrete):
        raise ValueError(f"actions must be Discrete, not {_one_line(space)}")
    return int(space.start), int(space.n)

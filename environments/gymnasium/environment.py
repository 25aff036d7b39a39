"""Environments of Gymnasium (farama.org): --env gymnasium:CartPole-v1.

The id is Gymnasium's own, version included; an environment that another package registers has the package's module in
front, as in gymnasium:ale_py:ALE/Pong-v5. An episode that Gymnasium calls truncated ends as "time_limit", whatever the
reason was. An episode that is both truncated and terminated is over ("game_over"). See `spaces` for what becomes of
observations and actions.
"""

import warnings
from collections.abc import Callable
from typing import Any, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from rainbow_iqn_apex.common import plugins
from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.common.text import name_error, nearest, one_line, suggestion
from rainbow_iqn_apex.environments.display import check_display, into_memory
from rainbow_iqn_apex.environments.extras import need
from rainbow_iqn_apex.environments.gymnasium.spaces import actions_of, check_inside, flaw, view_of
from rainbow_iqn_apex.environments.interface import EnvironmentSettings, as_number, first_row, next_row
from rainbow_iqn_apex.environments.replayed import ReplayedEnvironment
from rainbow_iqn_apex.memory.chunk import MOST
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec, unpack
from rainbow_iqn_apex.memory.hindsight import ACHIEVED, DESIRED, Judge
from rainbow_iqn_apex.memory.rows import Array, Row

_CHECKED_FIRST = 100  # rows of each environment whose numbers are compared with their space: 10 to 60 µs each
_CHECKED_EVERY = 997  # after them; prime, so that all environments of a vector get their turn
_BEYOND: set[str] = set()  # names of environments whose numbers beyond their bounds were reported by this process
_DM_CONTROL = "dm_control/"  # how the ids begin that Shimmy registers for dm_control


class GymnasiumEnvironment(ReplayedEnvironment):
    """One environment of Gymnasium.

    The environment has its own time step: `action_repeat` is 1 whatever the settings are, and nothing is sticky.
    Gymnasium promises that `reset(seed=...)` decides all that follows, and can save no state. Restoring takes some 10
    µs per step of CartPole, 50 to 230 µs of MuJoCo.
    """

    action_repeat = 1

    def __init__(self, settings: EnvironmentSettings, seed: int) -> None:
        super().__init__(settings.env.partition(":")[2], seed)
        self._environment = _open(self.name, settings)
        self._record = settings.record
        self.pictures_per_second = float(self._environment.metadata.get("render_fps") or 30)
        self._exchange = Exchange(
            self.name,
            self._environment.observation_space,
            self._environment.action_space,
            lambda: f"at step {self.steps} of episode {self.episode} ",
        )
        self.spec = self._exchange.spec
        self.judge = None if self.spec.observation.inner else judge_of(self._environment)
        if settings.render or settings.record:
            self._try_to_draw()

    def begin(self, seed: int) -> Row:
        """Begin the episode that a seed decides."""
        return first_row(self._exchange.shown(reset(self._environment, seed, self.name)))

    def play(self, action: int | Array) -> Row:
        """Act for one of the environment's own time steps."""
        native = self._exchange.native(action)
        obs, reward, terminated, truncated, _ = step(self._environment, native, self.name)
        shown = self._exchange.shown(obs)
        self.end = "game_over" if terminated else "time_limit" if truncated else ""
        return next_row(shown, self._exchange.gained(reward), self.end)

    def pictures(self) -> list[Array]:
        """Return one picture, of what the last step led to."""
        return [np.array(self._drawn(), np.uint8)] if self._record else []

    def _drawn(self) -> Any:
        with into_memory():
            return self._environment.render()

    def _try_to_draw(self) -> None:
        """Draw once, to fail now if anything for drawing is missing; the next reset begins anew."""
        try:
            reset(self._environment, 0, self.name)
            picture: Any = self._drawn() if self._record else None
            if self._record and np.ndim(picture) != 3:
                raise RuntimeError(f"cannot record {self.name}: it draws no pictures in colour")
        except (gymnasium.error.Error, ImportError) as error:
            doing = "record" if self._record else "render"
            raise RuntimeError(f"cannot {doing} {self.name}: {one_line(error)}") from error

    def close(self) -> None:
        """Close Gymnasium's environment, and its window."""
        self._environment.close()


def reset(environment: Any, seed: int | None, name: str) -> Any:
    """Reset an environment or a vector of them; returns the observation. Raises UserError for Gym's old API."""
    try:
        returned = environment.reset(seed=seed)
    except (TypeError, ValueError) as error:
        _refuse_old(error, name)
        raise
    if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], dict)):
        raise _old_api(name)
    return returned[0]


def step(environment: Any, action: Any, name: str) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
    """Act in an environment or a vector of them. Raises UserError for Gym's old API."""
    try:
        returned: tuple[Any, Any, Any, Any, dict[str, Any]] = environment.step(action)
    except (TypeError, ValueError) as error:
        _refuse_old(error, name)
        raise
    if len(returned) != 5:
        raise _old_api(name)
    return returned


def _refuse_old(error: Exception, name: str) -> None:
    """Raise UserError if a wrapper of Gymnasium's, and not the environment's own code, has met the old API."""
    trace = error.__traceback__
    while trace and trace.tb_next:
        trace = trace.tb_next
    met_by = str(trace.tb_frame.f_globals.get("__name__")) if trace else ""
    is_form = "values to unpack" in str(error) or "unexpected keyword argument 'seed'" in str(error)
    if is_form and met_by.startswith((__name__, "gymnasium.")):
        raise _old_api(name) from error


def _old_api(name: str) -> UserError:
    return UserError(
        f"--env: {name} has Gym's old API: wrap it in shimmy (GymV21CompatibilityV0), or let reset(seed=...) return "
        "(observation, info), and step (observation, reward, terminated, truncated, info)"
    )


class Exchange:
    """Converts observations, actions and rewards; raises ValueError, in one line, for spaces that no agent plays in."""

    def __init__(
        self,
        name: str,
        observations: spaces.Space[Any],
        actions: spaces.Space[Any],
        where: Callable[[], str] = lambda: "",
        count: int = 1,
    ) -> None:
        """`where` returns at which step the environment is, for errors; `count` environments share this."""
        try:
            view = view_of(observations)
            self._choice = actions_of(actions)
        except ValueError as error:
            raise ValueError(f"{name} cannot be played: {error}") from error
        self.spec = EnvironmentSpec(view.field, self._choice.spec, view.parts)
        self._name = name
        self._show = view.show
        self._where = where
        self._space = observations
        self._rows = 0
        self._checked_first = _CHECKED_FIRST * count

    def native(self, action: Any) -> Any:
        """Return what an agent chose as the environment takes it; raises ValueError for what it cannot choose."""
        return self._choice.native(self._choice.read(action))

    def shown(self, obs: Any) -> Array:
        """Return an observation as the network gets it; raises RunError for what is none of its space."""
        self._rows += 1
        try:
            if self._rows <= self._checked_first or not self._rows % _CHECKED_EVERY:
                self._note(check_inside(self._space, obs))
            shown = self._show(obs)
        except (ValueError, TypeError, LookupError, ArithmeticError) as error:
            why = f"its observation is none of its space ({one_line(error)}); fix the environment"
            raise RunError(f"{self._name}: {self._where()}{why}") from error
        for part in unpack(self.spec.observation, shown):
            if found := flaw(part, self.spec.parts):
                self._refuse(f"its observation holds {found}")
        return shown

    def _note(self, beyond: str) -> None:
        """Print, once in a process for each name, that a number is beyond the bounds of its space."""
        if beyond and self._name not in _BEYOND:
            _BEYOND.add(self._name)
            where = f"{self._name}: {self._where()}"
            print(f"{where}its observation leaves its space ({beyond}), and is used as it is", flush=True)

    def gained(self, reward: Any) -> float:
        """Return a reward; raises RunError for one that no replay takes."""
        gained = as_number(reward)
        if gained is None or not abs(gained) <= MOST:  # also of NaN
            self._refuse(f"its reward is {one_line(reward if gained is None else f'{gained:g}')}")
        return gained

    def _refuse(self, what: str) -> NoReturn:
        expected = f"expected finite numbers up to {MOST:g}, fix the environment"
        raise RunError(f"{self._name}: {self._where()}{what}; {expected}")


def _open(id_: str, settings: EnvironmentSettings) -> gymnasium.Env[Any, Any]:
    """Make Gymnasium's environment; raises ValueError, in one line, if that is impossible."""
    if settings.render:
        check_display()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about packages that will change: a person who starts a run cannot help that
        spec = find_spec(id_)
        mode = "human" if settings.render else "rgb_array" if settings.record else ""
        drawing: dict[str, Any] = {"render_mode": mode} if mode else {}  # not all environments accept the argument
        try:
            # Without the checker, which looks at every step for mistakes in the environment's code.
            return gymnasium.make(spec, disable_env_checker=True, **drawing)
        except (gymnasium.error.Error, ImportError, TypeError, OverflowError) as error:
            raise ValueError(f"{id_} cannot be made: {one_line(error)}") from error


def find_spec(id_: str) -> EnvSpec:
    """Find exactly this id: without a version, Gymnasium would take the newest: one id would mean several things."""
    if not id_:
        raise ValueError("gymnasium needs a name, as in gymnasium:CartPole-v1")
    module, _, name = id_.rpartition(":")
    if name.startswith(_DM_CONTROL):
        need("dm-control", id_)
    if module == "minigrid":
        need(module, id_)
    if module:
        _import(module)
    if name in gymnasium.registry:
        spec = gymnasium.registry[name]
        if str(spec.entry_point).startswith("gymnasium.envs.mujoco."):
            need("mujoco", id_)
        return spec
    close = nearest(name, gymnasium.registry)
    hint = suggestion(close, "one of another package has its module in front, as in gymnasium:ale_py:ALE/Pong-v5")
    raise ValueError(f"gymnasium knows no environment {name!r}; {hint}")


def _import(module: str) -> None:
    """Import a module, for the environments that it registers."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as in `_open`
            plugins.import_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(f"cannot import {module!r}: {name_error(error)}") from error


class GoalJudge:
    """Goals of Gymnasium-Robotics' form: what a step would have earned, had another goal been desired.

    Such an environment has observations {"observation", "achieved_goal", "desired_goal"} and a method
    `compute_reward(achieved_goal, desired_goal, info)`. If it has `compute_terminated`, too, that decides about true
    ends. Goals are given in the environment's own shape and type, and the info is empty.
    """

    def __init__(self, environment: Any, space: spaces.Space[Any]) -> None:
        self._environment = environment
        assert space.shape is not None and space.dtype is not None
        self._shape = space.shape
        self._dtype = space.dtype

    def __call__(self, achieved: Array, desired: Array, discount: float) -> tuple[float, float]:
        """Return reward and discount; the discount stays as it is where the environment does not decide it."""
        goals = [np.asarray(goal).reshape(self._shape).astype(self._dtype) for goal in (achieved, desired)]
        found = self._environment.compute_reward(*goals, {})
        if (reward := as_number(found)) is None:
            raise RunError(f"compute_reward has returned {one_line(found)}; expected a number, fix the environment")
        if callable(getattr(self._environment, "compute_terminated", None)):
            discount = 0.0 if self._environment.compute_terminated(*goals, {}) else 1.0
        return reward, discount


def judge_of(environment: gymnasium.Env[Any, Any]) -> Judge | None:
    """Return how an environment judges goals; None if it has no goals of numbers, or no `compute_reward`."""
    space = environment.observation_space
    inner = environment.unwrapped
    if not isinstance(space, spaces.Dict) or not callable(getattr(inner, "compute_reward", None)):
        return None
    goals = [space.spaces.get(name) for name in (ACHIEVED, DESIRED)]
    if not all(isinstance(goal, spaces.Box | spaces.MultiBinary) for goal in goals) or goals[0] is None:
        return None
    return GoalJudge(inner, goals[0])

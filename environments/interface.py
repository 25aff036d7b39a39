"""Interface of environments, and the settings that they are made from.

    environment = make_environment(EnvironmentSettings(game="pong"), seed)
    row = environment.reset()                   # FIRST
    while row.step_type != StepType.LAST:
        row = environment.step(choose(row))     # MID ..., LAST
    print(environment.end)                      # "game_over", "stuck" or "time_limit"

A new environment is a folder and one line in `environments.registry`.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.common.text import one_line
from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec
from rainbow_iqn_apex.memory.rows import Array, Arrays, Row, StepType

ENDS = ("game_over", "stuck", "time_limit")


@dataclass(frozen=True)
class OwnOptions:
    """options of the environment"""

    # A class that derives from this one has a field per option, made by `common.option.option`, and this docstring's
    # place in --help. The options belong to what is played: all processes share them, and an evaluation takes them
    # from the snapshot. Those with the mark `machine` are of each process alone: no record and no snapshot has them.

    def errors(self) -> list[str]:
        """Return what is wrong with the options together, one line each."""
        return []


@dataclass(frozen=True)
class EnvironmentSettings:
    """Settings of an environment; an environment without frames or stickiness ignores the settings about them."""

    env: str = "atari"  # a name in `environments.registry`; what follows a colon is its own, as in gymnasium:<id>
    game: str = "pong"  # snake_case, see saber.games
    proba_sticky_actions: float = 0.25  # per frame; 0.25: Machado et al. 2018
    action_repeat: int = 4  # frames per agent step
    saber_mode: bool = True  # False: episodes are cut at 30 minutes, and no episode is stuck
    render: bool = False  # show the game in a window
    record: bool = False  # keep the pictures of each step, for a video
    evaluation: bool = False  # play what is held out for evaluations, where an environment has such levels
    own: OwnOptions = OwnOptions()  # of the type that the environment declares


class Environment(Protocol):
    """One environment; a step is one agent step of `action_repeat` frames."""

    spec: EnvironmentSpec  # of observations and actions
    action_repeat: int  # frames per agent step, at 60 frames per second of game time
    pictures_per_second: float  # of what `pictures` gives, at normal speed
    # An environment whose rewards are not its score also has `gained`, what the last step adds to the score: a float.
    # One that draws some things in every other frame alone, as Atari's games do, has `blinks`: True.
    end: str  # why the episode ended, once it has: "game_over", "stuck" or "time_limit"; empty before

    def reset(self) -> Row:
        """Begin an episode; its FIRST row has reward 0 and discount 1."""

    def step(self, action: int | Array) -> Row:
        """Act once: a MID row or the LAST one, with a new array as observation and the raw reward of the step."""

    def pictures(self) -> list[Array]:
        """Return the pictures [height, width, 3] uint8 RGB of the last step or reset, if `record` is set."""

    def snapshot(self) -> Arrays:
        """Return the state: all that is needed to continue exactly, also in another process; never changed later."""

    def restore(self, arrays: Arrays) -> None:
        """Continue after the row that was current when the state was saved; the caller has to keep that row.

        Raises EpisodeLostError if the episode cannot be continued.
        """

    def close(self) -> None:
        """Give back windows, files and processes."""


class EpisodeLostError(RunError):
    """The episode of a saved state cannot be continued, as where its actions, played again, lead elsewhere.

    `restore` raises it. The caller cuts the episode off, and `reset` begins the next one.
    """


def first_row(obs: Array) -> Row:
    """Return the row with which an episode begins."""
    return Row(obs, StepType.FIRST, 0.0, 1.0)


def next_row(obs: Array, reward: float, end: str) -> Row:
    """Return the row that a step has led to; `end` is why it has ended the episode, empty if it has not."""
    return Row(obs, StepType.LAST if end else StepType.MID, reward, 0.0 if end == "game_over" else 1.0)


def act(environment: Environment, action: int | Array) -> Row:
    """Act once, with an action of the environment's own: it may scale an array in place, where others need it."""
    return environment.step(action.copy() if isinstance(action, np.ndarray) else action)


def gained(environment: Environment, row: Row) -> float:
    """Return what the step that led to a row adds to the score: its reward, unless the environment has `gained`.

    Raises UserError for what is no number.
    """
    found = getattr(environment, "gained", row.reward)
    if (number := as_number(found)) is None:
        raise UserError(f"--env: a reward is {one_line(found)}, and a number was expected; fix the environment")
    return number  # sums of NumPy's float32 lose digits


def as_number(value: Any) -> float | None:
    """Return a reward as a float, also one that is an array of a single number; None for anything else."""
    if isinstance(value, float):
        return float(value)  # of NumPy's float64, too
    found = np.asarray(value)
    return float(found.item()) if found.size == 1 and found.dtype.kind in "uifb" else None

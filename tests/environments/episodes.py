"""Whole episodes for the tests of environments."""

from collections.abc import Callable
from typing import Any

from rainbow_iqn_apex.environments.interface import Environment
from rainbow_iqn_apex.memory.rows import Row, StepType


def play_out(environment: Environment, act: Callable[[list[Row]], Any]) -> list[Row]:
    """Play an episode in which `act` chooses each action from the rows so far; return its rows."""
    rows = [environment.reset()]
    while rows[-1].step_type != StepType.LAST:
        rows.append(environment.step(act(rows)))
    return rows

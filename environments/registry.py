"""Environments by name. A new environment is one file and one line here."""

import importlib
from collections.abc import Callable

from rainbow_iqn_apex.environments.interface import Environment, EnvironmentSettings

Make = Callable[[EnvironmentSettings, int], Environment]


def _class(module: str, name: str) -> Make:
    """Return a function that imports an environment's class when it is made: others need not its libraries."""

    def make(settings: EnvironmentSettings, seed: int) -> Environment:
        environment: Environment = getattr(importlib.import_module(module), name)(settings, seed)
        return environment

    return make


ENVIRONMENTS: dict[str, Make] = {
    "atari": _class("rainbow_iqn_apex.saber.atari", "AtariEnvironment"),
    "gymnasium": _class("rainbow_iqn_apex.environments.gymnasium.environment", "GymnasiumEnvironment"),
}


def make_environment(settings: EnvironmentSettings, seed: int) -> Environment:
    """Make the environment that `settings.env` names; `seed` decides all its randomness."""
    name = settings.env.partition(":")[0]
    if name not in ENVIRONMENTS:
        raise ValueError(f"unknown environment {settings.env!r}; there are: {', '.join(sorted(ENVIRONMENTS))}")
    return ENVIRONMENTS[name](settings, seed)

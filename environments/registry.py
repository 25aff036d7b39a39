"""Environments by name. A new environment is one file and one line here.

Environments of other packages need no line: `--env package.module:make` names a function of `EnvironmentSettings` and a
seed that returns an `Environment`. So does an entry point of the group `rainbow_iqn_apex.environments`; what follows a
colon after its name is the environment's own, as in gymnasium:<id>.
"""

import importlib
from collections.abc import Callable
from contextlib import closing
from functools import lru_cache

from rainbow_iqn_apex.common import plugins
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.environments.interface import Environment, EnvironmentSettings

GROUP = "rainbow_iqn_apex.environments"  # of entry points
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


def outside(env: str) -> str:
    """Return where an environment of another package is made, as package.module:make; empty for one of the registry."""
    kind = env.partition(":")[0]
    return "" if kind in ENVIRONMENTS else plugins.offered(GROUP).get(kind, env)


def named_module(env: str) -> str:
    """Return the module that is imported because `env` itself names it; empty if none is."""
    kind, _, rest = env.partition(":")
    if kind in ENVIRONMENTS:
        return rest.rpartition(":")[0]
    return "" if kind in plugins.offered(GROUP) else kind


def find_environment(env: str) -> Make | None:
    """Return what makes the environment that `--env` names, None if there is none.

    Raises UserError if the environment's module cannot be imported.
    """
    if not (place := outside(env)):
        return ENVIRONMENTS[env.partition(":")[0]]
    if not plugins.module_exists(place):
        return None
    make: Make = plugins.load("--env", place)
    return make


@lru_cache
def observes_pictures(env: str) -> bool:
    """Return whether the environment that `--env` names shows pictures; one that cannot be made shows none.

    Others than Atari's are opened to see.
    """
    if env == EnvironmentSettings.env:
        return True
    try:
        with closing(make_environment(EnvironmentSettings(env=env), 0)) as environment:
            return environment.spec.observation.is_picture
    except (UserError, ValueError, RuntimeError):  # the program that plays it names the mistake
        return False


def make_environment(settings: EnvironmentSettings, seed: int) -> Environment:
    """Make the environment that `settings.env` names; `seed` decides all its randomness."""
    if make := find_environment(settings.env):
        return make(settings, seed)
    raise ValueError(f"unknown environment {settings.env!r}; there are: {', '.join(sorted(ENVIRONMENTS))}")

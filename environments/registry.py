"""Environments by name. A new environment is one file and one line here."""

from collections.abc import Callable

from rainbow_iqn_apex.environments.interface import Environment, EnvironmentSettings


def _atari(settings: EnvironmentSettings, seed: int) -> Environment:
    from rainbow_iqn_apex.saber.atari import AtariEnvironment  # other environments need neither the emulator nor OpenCV

    return AtariEnvironment(settings, seed)


def _gymnasium(settings: EnvironmentSettings, seed: int) -> Environment:
    from rainbow_iqn_apex.environments.gymnasium.environment import GymnasiumEnvironment

    return GymnasiumEnvironment(settings, seed)


ENVIRONMENTS: dict[str, Callable[[EnvironmentSettings, int], Environment]] = {
    "atari": _atari,
    "gymnasium": _gymnasium,
}


def make_environment(settings: EnvironmentSettings, seed: int) -> Environment:
    """Make the environment that `settings.env` names; `seed` decides all its randomness."""
    name = settings.env.partition(":")[0]
    if name not in ENVIRONMENTS:
        raise ValueError(f"unknown environment {settings.env!r}; there are: {', '.join(sorted(ENVIRONMENTS))}")
    return ENVIRONMENTS[name](settings, seed)

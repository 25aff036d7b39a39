"""Environments of tests, described."""

from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field


def discrete(shape: tuple[int, ...], dtype: str, actions: int) -> EnvironmentSpec:
    """Describe an environment with one choice among so many actions."""
    return EnvironmentSpec(Field(shape, dtype), Discrete(actions))


ATARI = discrete((84, 84), "uint8", 18)
CARTPOLE = discrete((4,), "float32", 2)

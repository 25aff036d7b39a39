"""What both engines of football have in common: planes, actions, and how a match ends."""

from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field, packed

PLANES = ("left team", "right team", "ball", "active player")
CHOICE = Discrete(19)  # of gfootball's default set
STEPS_PER_SECOND = 10.0  # of game time
ENDS = ("", "game_over", "time_limit")


def spec_of(size: tuple[int, int]) -> EnvironmentSpec:
    """Return the spec of planes of this height and width, a bit for each of their points."""
    return EnvironmentSpec(packed(Field((len(PLANES), *size), "bool")), CHOICE)

"""What both engines of football have in common: planes, actions, rows, and how a match ends."""

from typing import NamedTuple

from rainbow_iqn_apex.memory.environment_spec import Discrete, EnvironmentSpec, Field, packed
from rainbow_iqn_apex.memory.rows import Array, Row, StepType

PLANES = ("left team", "right team", "ball", "active player")
CHOICE = Discrete(19)  # of gfootball's default set
STEPS_PER_SECOND = 10.0  # of game time
ENDS = ("", "game_over", "time_limit")


def spec_of(size: tuple[int, int]) -> EnvironmentSpec:
    """Return the spec of planes of this height and width, a bit for each of their points."""
    return EnvironmentSpec(packed(Field((len(PLANES), *size), "bool")), CHOICE)


class Moment(NamedTuple):
    """A match after a step."""

    obs: Array  # the planes, packed
    goals: tuple[int, int]  # of the left team, which is ours, and of the right one
    end: str  # "game_over" or "time_limit"; empty: the match goes on
    bonus: float = 0.0  # of the checkpoints that the step has reached

    @property
    def lead(self) -> int:
        """Our goals less those of the others."""
        return self.goals[0] - self.goals[1]


def first_row(moment: Moment) -> Row:
    """Return the row of a match that begins."""
    return Row(moment.obs, StepType.FIRST, 0.0, 1.0)


def next_row(moment: Moment, gained: float) -> Row:
    """Return the row after a step that has changed the lead by `gained`."""
    step_type = StepType.LAST if moment.end else StepType.MID
    return Row(moment.obs, step_type, gained + moment.bonus, 0.0 if moment.end == "game_over" else 1.0)

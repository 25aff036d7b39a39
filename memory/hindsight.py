"""Hindsight: goals that were reached later in an episode, as if they had been desired (Andrychowicz et al. 2017).

arXiv 1707.01495, strategy "future" with k goals for each transition. An actor draws them when a chunk is complete,
because it has the environment, which alone has the reward under another goal. They stay with the chunk: k goals,
and for each the reward and the discount of the next row. Goals come from the rows of the chunk alone. So a chunk
remains self-contained, and what an actor must keep of an episode is bounded by a chunk's length.
Letters: T rows of a window, k goals of a row, G numbers of a goal.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rainbow_iqn_apex.memory.environment_spec import EnvironmentSpec, Field
from rainbow_iqn_apex.memory.rows import Array, Arrays, StepType

ACHIEVED, DESIRED = "achieved_goal", "desired_goal"  # parts of an observation, as Gymnasium-Robotics names them
GOAL, REWARD, DISCOUNT = "hindsight.goal", "hindsight.reward", "hindsight.discount"  # arrays of a chunk


# achieved [G], desired [G], discount under the episode's own goal -> reward and discount with which the row arrives
Judge = Callable[[Array, Array, float], tuple[float, float]]


@dataclass(frozen=True)
class Hindsight:
    """Draws goals for the rows of chunks."""

    achieved: slice  # of an observation
    count: int  # k
    judge: Judge

    def __call__(self, rows: Arrays, first: int, stop: int, rng: np.random.Generator) -> Arrays:
        """Return `GOAL` [T, k, G], `REWARD` and `DISCOUNT` [T, k] float32 of the rows `first` to before `stop`.

        Goal j of row t was achieved at a row drawn uniformly from those after t, up to the episode's last or the
        window's; reward and discount are those with which row t + 1 would have arrived. All other rows, and LAST
        ones, have zeros.
        """
        achieved = rows["obs"][:, self.achieved]  # [T, G]
        T, G = achieved.shape
        goal = np.zeros((T, self.count, G), np.float32)
        reward, discount = np.zeros((2, T, self.count), np.float32)
        for t, end in zip(range(first, stop), _ends(rows["step_type"])[first:stop].tolist(), strict=True):
            if end == t:
                continue
            goal[t] = achieved[rng.integers(t + 1, end + 1, self.count)]
            arrived = float(rows["discount"][t + 1])
            judged = [self.judge(achieved[t + 1], desired, arrived) for desired in goal[t]]
            reward[t], discount[t] = np.transpose(judged)
        return {GOAL: goal, REWARD: reward, DISCOUNT: discount}


def hindsight_fields(environment: EnvironmentSpec, count: int) -> dict[str, Field]:
    """Return how a chunk stores k goals of each row; raises KeyError for an environment without goals."""
    goal = environment.part(DESIRED)
    numbers = Field((count,), "float32")
    return {GOAL: Field((count, goal.stop - goal.start), "float32"), REWARD: numbers, DISCOUNT: numbers}


def has_goals(environment: EnvironmentSpec) -> bool:
    """Return whether an observation has a goal that is desired and one that was achieved, of the same size.

    Beside a picture or a text the numbers are bytes, and parts do not tell their places.
    """
    sizes = {part.name: part.stop - part.start for part in environment.parts}
    return not environment.observation.inner and DESIRED in sizes and sizes[DESIRED] == sizes.get(ACHIEVED)


def _ends(step_type: Array) -> Array:
    """Return the row [T] at which each row's episode ends, or the window, if that comes before."""
    last = step_type == StepType.LAST
    places = np.where(last, np.arange(len(last)), len(last) - 1)  # [T]
    ends: Array = np.minimum.accumulate(places[::-1])[::-1]
    return ends

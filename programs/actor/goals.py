"""Draws the goals of hindsight in an actor."""

import numpy as np

from rainbow_iqn_apex.agents.policy import Policy
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.common.seeds import derive_seed
from rainbow_iqn_apex.environments.vector import Vector
from rainbow_iqn_apex.memory.hindsight import ACHIEVED, Hindsight
from rainbow_iqn_apex.memory.rows import Arrays


class Goals:
    """Gives the rows of chunks goals that were reached later, for an agent whose chunks have some.

    What is drawn depends on the actor, the environment and its step alone. So an actor that goes on from a saved state
    draws the same again, and has nothing of this to save.
    """

    def __init__(self, args: Args, policy: Policy, environments: Vector) -> None:
        """Find how the environments judge goals; raises UserError if they cannot."""
        judges = [judge for judge in environments.judges if judge]
        if len(judges) < environments.count:
            raise UserError("--hindsight: the environment has no compute_reward for its goals; leave the option out")
        self._spec = policy.spec
        achieved = environments.spec.part(ACHIEVED)
        self._hindsight = [Hindsight(achieved, policy.spec.hindsight, judge) for judge in judges]
        self._seed = derive_seed(args.seed, 6, args.id_actor)

    def draw(self, rows: Arrays, env: int, step: int) -> Arrays:
        """Return goals, rewards and discounts for a chunk that an environment completes at a step of its actor."""
        rng = np.random.default_rng([self._seed, env, step])
        first = self._spec.prefix
        return self._hindsight[env](rows, first, first + self._spec.length, rng)

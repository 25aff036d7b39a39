"""Environments whose states are their actions."""

from typing import Any, cast

import numpy as np

from rainbow_iqn_apex.environments.interface import Environment, act, first_row, next_row
from rainbow_iqn_apex.environments.replayed import ReplayedEnvironment
from rainbow_iqn_apex.environments.vector import VectorEnvironment
from rainbow_iqn_apex.memory.environment_spec import Box, Discrete, EnvironmentSpec, Field
from rainbow_iqn_apex.memory.rows import Row


class Scaling(ReplayedEnvironment):
    """Scales its actions where they are, as environments of others may."""

    spec = EnvironmentSpec(Field((1,), "float32"), Box(1))
    action_repeat = 1

    def begin(self, seed: int) -> Row:  # noqa: ARG002
        return first_row(np.zeros(1, np.float32))

    def play(self, action: Any) -> Row:
        action *= 2
        return next_row(np.zeros(1, np.float32), 0.0, "")


class Reusing(Scaling):
    """Writes all observations into one array; an episode takes a step."""

    seen = np.zeros(1, np.float32)

    def begin(self, seed: int) -> Row:  # noqa: ARG002
        self.seen[:] = 1
        return first_row(self.seen)

    def play(self, action: Any) -> Row:  # noqa: ARG002
        self.seen[:], self.end = 2, "time_limit"
        return next_row(self.seen, 0.0, self.end)


class Counting(Scaling):
    """Calculates with its actions."""

    spec = EnvironmentSpec(Field((1,), "float32"), Discrete(2))
    at = 0

    def begin(self, seed: int) -> Row:  # noqa: ARG002
        self.at = 0
        return first_row(np.zeros(1, np.float32))

    def play(self, action: Any) -> Row:
        self.at += 2 * action - 1
        return next_row(np.array([self.at], np.float32), 0.0, "")


def test_an_action_is_played_again_as_it_was() -> None:
    # Mutation: play the bytes that a state holds, of which -1 is 255.
    played, restored = Counting("counting", 0), Counting("counting", 0)
    vector = VectorEnvironment([cast(Environment, played)])
    vector.reset()
    for action in (0, 1, 0, 0):
        vector.step(np.array([action], played.spec.action.field.dtype))
    restored.restore(played.snapshot())
    assert restored.at == played.at == -2


def test_an_environment_may_use_one_array_for_all_observations() -> None:
    # Mutation: keep the LAST row as it is, while `reset` writes the next FIRST one.
    vector = VectorEnvironment([cast(Environment, Reusing("reusing", 0))])
    vector.reset()
    rows, ended, _ = vector.step(np.zeros((1, 1), np.float32))
    assert ended[0].obs == 2 and rows.obs == 1


def test_an_environment_may_scale_its_actions_in_place() -> None:
    # Mutations: hand over the agent's own array; save an action after it was played.
    environment = Scaling("scaling", 0)
    vector = VectorEnvironment([cast(Environment, environment)])
    vector.reset()
    actions = np.full((1, 1), 0.75, np.float32)
    actions.setflags(write=False)  # as what an inference server answers
    vector.step(actions)
    assert environment.snapshot()["actions"].tolist() == actions.tolist()
    act(cast(Environment, environment), actions[0])  # as evaluations do

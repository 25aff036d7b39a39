"""Environments whose states are their actions."""

import re
from typing import Any, cast

import numpy as np
import pytest

from rainbow_iqn_apex.environments.interface import Environment, act, first_row, next_row
from rainbow_iqn_apex.environments.replayed import ReplayedEnvironment
from rainbow_iqn_apex.environments.vector import VectorEnvironment
from rainbow_iqn_apex.memory.environment_spec import Box, Discrete, EnvironmentSpec, Field
from rainbow_iqn_apex.memory.rows import Row, StepType


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


class Straying(Scaling):
    """Leads elsewhere when an episode is played again, in one of three ways, or in none."""

    spec = EnvironmentSpec(Field((1,), "float32"), Discrete(2))
    begun = 0  # in no state, as random numbers that no seed decides

    def __init__(self, way: str) -> None:
        super().__init__(way, 0)

    def begin(self, seed: int) -> Row:  # noqa: ARG002
        self.begun += 1
        return first_row(self._seen())

    def play(self, action: Any) -> Row:  # noqa: ARG002
        if self._strays("fails") and self.steps == 4:
            raise KeyError("there is no such move here")
        self.end = "game_over" if self._strays("ends") and self.steps == 4 else ""
        self.end = "time_limit" if self.steps == 9 else self.end
        return next_row(self._seen(), 1.0, self.end)

    def _seen(self) -> Any:
        return np.array([self.steps + 100 * self._strays("shows")], np.float32)

    def _strays(self, way: str) -> bool:
        return self.name == way and self.begun > 2 and self.episode == 1


@pytest.mark.parametrize("pending", [0, 1], ids=["at once", "after another snapshot"])
def test_an_episode_that_leads_elsewhere_is_cut_off_and_the_others_continue(pending: int) -> None:
    # Mutations: the MID row as it was; a record of the cut episode; its score in the next record; its seed again.
    ways = ["shows", "ends", "fails", ""]

    def vector() -> VectorEnvironment:
        return VectorEnvironment([cast(Environment, Straying(way)) for way in ways])

    played, other = vector(), vector()
    other.reset()  # so that what follows is another beginning
    other.reset()
    rows = played.reset()
    for _ in range(6):
        rows = played.step(np.zeros(4, np.int64)).rows
    restored = other.restore(played.snapshot())
    if pending:  # a process that ends before its next step
        other.restore(other.snapshot())
    assert len(restored.lost) == 3
    for why, what in zip(restored.lost, ("shows .* elsewhere", "ends .* 4 of 6", r"fails .*\(KeyError"), strict=True):
        assert re.search(what, why) and "\n" not in why
    assert restored.rows.step_type.tolist() == [StepType.LAST] * 3 + [StepType.MID]
    assert restored.rows.discount.tolist() == [1] * 4, "bootstrapped from, as what a time limit ends"
    assert np.array_equal(restored.rows.obs, rows.obs), "what the agent saw, not what the replay led to"
    step = other.step(np.zeros(4, np.int64))
    assert step.rows.step_type.tolist() == [StepType.FIRST] * 3 + [StepType.MID]
    assert not step.ended and not step.episodes
    numbers = [cast(Straying, environment).episode for environment in other.environments]
    assert numbers[:3] == [2] * 3 and numbers[3] == 1
    records = [record for _ in range(9) for record in other.step(np.zeros(4, np.int64)).episodes]
    found = [(one.env, one.episode, one.length, one.score_saber) for one in records]
    assert found == [(3, 0, 9, 9), (0, 0, 9, 9), (1, 0, 9, 9), (2, 0, 9, 9)]


def test_a_damaged_state_is_none_of_an_episode_that_leads_elsewhere() -> None:
    environment = Counting("counting", 0)
    environment.reset()
    saved = environment.snapshot() | {"actions": np.zeros((2, 3), np.uint8)}
    with pytest.raises(ValueError, match="actions of shape"):
        environment.restore(saved)


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

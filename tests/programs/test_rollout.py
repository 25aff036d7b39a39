"""What an actor refuses to send, as its learner would leave it out."""

from collections.abc import Callable
from typing import cast

import numpy as np
import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.common.errors import RunError, UserError
from rainbow_iqn_apex.environments.vector import VectorEnvironment
from rainbow_iqn_apex.memory.rows import Array, Row
from rainbow_iqn_apex.programs.actor.rollout import Rollout
from rainbow_iqn_apex.programs.agent import make_agent
from tests.chain.environment import ChainEnvironment
from tests.small import SHORT_CHAIN, TINY


class WrongChain(ChainEnvironment):
    """Gives rows that are changed."""

    def __init__(self, change: Callable[[Row], Row]) -> None:
        super().__init__(0)
        self._change = change

    def step(self, action: int | Array) -> Row:
        return self._change(super().step(action))


class Won(ChainEnvironment):
    """Ends an episode for a reason that is none."""

    def step(self, action: int | Array) -> Row:
        row = super().step(action)
        self.end = self.end and "won"
        return row


def play(environment: ChainEnvironment) -> None:
    args = options.parse(
        [*SHORT_CHAIN, *TINY, *"--initial-priorities largest --nb-env-per-actor 1 --id-actor 0".split()], "test", ""
    )
    agent = make_agent(args, environment.spec, torch.device("cpu"), learns=False, seed=3)
    rollout = Rollout(args, agent, VectorEnvironment([environment]))
    for step in range(200):
        rollout.play(step, step + 1)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda row: row._replace(reward=np.nan), "a number in reward that is not finite"),
        (lambda row: row._replace(discount=2.0), "a number in discount outside 0 to 1"),
        (lambda row: row._replace(reward=1e30), "a number in reward beyond"),
    ],
)
def test_rows_that_no_learner_takes_end_their_actor(change: Callable[[Row], Row], told: str) -> None:
    """Sent, they would be left out and counted as unreadable, and the run would never learn nor end."""
    # Mutation: send them.
    with pytest.raises(RunError, match=f"^what environment and agent give cannot be learned from: .*{told}"):
        play(WrongChain(change))
    play(WrongChain(lambda row: row))


def test_scores_are_floats_whatever_numbers_rewards_are() -> None:
    # Mutation: add up what the environment gives: 24 bits, which no message takes.
    vector = VectorEnvironment([WrongChain(lambda row: row._replace(reward=cast(float, np.float32(row.reward))))])
    vector.reset()
    while not (records := vector.step([0]).episodes):
        pass
    assert type(records[0].score_5min) is type(records[0].score_saber) is float


def test_an_episode_ends_for_one_of_three_reasons() -> None:
    with pytest.raises(UserError, match=r"^--env: an episode has ended, and its `end` is 'won'; expected one of "):
        play(Won(0))


@pytest.mark.parametrize("change", [lambda obs: obs.astype(float), lambda obs: obs[:2], lambda obs: obs.tolist()])
def test_observations_are_as_the_spec_has_them(change: Callable[[Array], Array]) -> None:
    with pytest.raises(UserError, match=r"^--env: an observation is .*, where the spec has uint8 \(5,\); fix the "):
        play(WrongChain(lambda row: row._replace(obs=change(row.obs))))

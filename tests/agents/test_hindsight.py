"""Hindsight: which goals are drawn, what they would have earned, how SAC samples them, and what they are good for."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.sac.agent import with_other_goals
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.environments.gymnasium.environment import GoalJudge
from rainbow_iqn_apex.environments.vector import VectorEnvironment
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.broker.actor_client import Saved
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId, check_chunk
from rainbow_iqn_apex.memory.hindsight import DISCOUNT, GOAL, REWARD, Hindsight
from rainbow_iqn_apex.memory.messages import Episode, encode_message
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.memory.rows import Arrays, StepType
from rainbow_iqn_apex.programs.actor.rollout import ResumePoint, Rollout
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.common import open_environment
from rainbow_iqn_apex.programs.learner.trainers import Turn, make_trainer
from tests.agents.sequences import CPU
from tests.goals import BIT_FLIP, BITS, BitFlip

ACHIEVED, DESIRED = slice(0, BITS), slice(BITS, 2 * BITS)  # parts stand in the order of their names
FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST


pytestmark = pytest.mark.usefixtures("one_thread")


def args_of(*more: str) -> Args:
    small = "--agent sac --hindsight 0.8 --hidden-size 8 --id-actor 0 --nb-env-per-actor 2 --learn-start 100"
    return options.parse([*small.split(), *BIT_FLIP.split(), *more], "test", "")


def rollout_of(args: Args, seed: int = 5) -> Rollout:
    environments = [open_environment(args, seed) for seed in range(args.nb_env_per_actor)]
    agent = make_agent(args, environments[0].spec, CPU, learns=False, seed=seed)
    return Rollout(args, agent, VectorEnvironment(environments))


def chunks_of(rollout: Rollout, steps: int) -> list[Chunk]:
    messages = [message for step in range(steps) for message in rollout.play(2 * step, 2 * step + 2)]
    return [message for message in messages if isinstance(message, Chunk)]


# --- what actors draw ---


def test_goals_are_those_of_any_later_row_of_the_episode_alike() -> None:
    # Mutations: the row itself, rows of the next episode, the window's end in the place of the episode's.
    step_type = np.array([MID, MID, LAST, FIRST, MID, MID, MID, LAST, FIRST, MID, MID, MID], np.uint8)
    obs = np.stack([np.arange(12), 100 + np.arange(12)], 1).astype(np.float32)  # achieved: the row's number
    rows: Arrays = {"obs": obs, "step_type": step_type, "discount": np.ones(12, np.float32)}
    draw = Hindsight(slice(0, 1), 5000, lambda achieved, desired, discount: (-abs(achieved[0] - desired[0]), discount))
    found = draw(rows, 1, 11, np.random.default_rng(1))
    later = {1: [2], 3: [4, 5, 6, 7], 4: [5, 6, 7], 5: [6, 7], 6: [7], 8: [9, 10, 11], 9: [10, 11], 10: [11]}
    for t in range(12):
        goals, counts = np.unique(found[GOAL][t, :, 0], return_counts=True)
        if t in later:
            assert goals.tolist() == later[t]
            assert counts == pytest.approx(5000 / len(goals), rel=0.1)
            assert np.array_equal(found[REWARD][t], -np.abs(t + 1 - found[GOAL][t, :, 0]))
            assert (found[DISCOUNT][t] == 1).all()
        else:
            assert not any(array[t].any() for array in found.values()), "LAST, or outside of what is learned from"


def test_an_actor_s_chunks_hold_goals_with_what_they_would_have_earned() -> None:
    # Mutations: judge the row itself instead of the next one; leave the discount as it was.
    chunks = chunks_of(rollout_of(args_of()), 300)
    assert len(chunks) == 2
    true_ends = 0
    for chunk in chunks:
        rows = chunk.rows
        for t in range(256):
            if rows["step_type"][t] == LAST:
                continue
            end = next((s for s in range(t + 1, 257) if rows["step_type"][s] == LAST), 256)
            reachable = rows["obs"][t + 1 : end + 1, ACHIEVED]
            for j in range(4):
                goal = rows[GOAL][t, j]
                assert (reachable == goal).all(1).any()
                reached = np.array_equal(rows["obs"][t + 1, ACHIEVED], goal)
                assert (rows[REWARD][t, j], rows[DISCOUNT][t, j]) == ((0, 0) if reached else (-1, 1))
                true_ends += reached
            own = np.array_equal(rows["obs"][t + 1, ACHIEVED], rows["obs"][t, DESIRED])
            assert (rows["reward"][t + 1], rows["discount"][t + 1]) == ((0, 0) if own else (-1, 1))
    assert true_ends > 500


def test_a_restored_actor_draws_the_same_goals() -> None:
    # Mutation: draw from a generator that is not part of the actor's state.
    rollout, other = rollout_of(args_of()), rollout_of(args_of(), seed=5)
    for step in range(200):
        rollout.play(2 * step, 2 * step + 2)
    other.restore(Saved(rollout.snapshot(ResumePoint(0, 200)), 0))
    for step in range(200, 300):
        one, same = (player.play(2 * step, 2 * step + 2) for player in (rollout, other))
        assert [*map(encode_message, one)] == [*map(encode_message, same)]
    assert rollout.step == 300


def test_environments_and_actors_draw_different_goals() -> None:
    rows = chunks_of(rollout_of(args_of()), 300)[0].rows
    goals = [rollout_of(args_of(*more.split()))._goals for more in ("", "--seed 5", "--id-actor 1 --nb-actor 2")]
    drawn = [g.draw(rows, env, step)[GOAL].tobytes() for g in goals if g for env in (0, 1) for step in (7, 8)]
    assert len(set(drawn)) == len(drawn) == 12


def test_a_discount_stays_where_the_environment_cannot_judge_ends() -> None:
    class NoEnds(BitFlip):
        compute_terminated = None  # type: ignore[assignment]

    space = BitFlip().observation_space["desired_goal"]
    goals = np.ones(BITS, np.float32), np.zeros(BITS, np.float32)
    assert [GoalJudge(BitFlip(), space)(*goals, discount) for discount in (0.0, 1.0)] == [(-1, 1), (-1, 1)]
    assert GoalJudge(BitFlip(), space)(goals[0], goals[0], 1.0) == (0, 0)
    assert [GoalJudge(NoEnds(), space)(*goals, discount) for discount in (0.0, 1.0)] == [(-1, 0), (-1, 1)]


@pytest.mark.parametrize("damage", [{DISCOUNT: 2.0}, {DISCOUNT: -1.0}, {GOAL: np.nan}, {REWARD: np.inf}])
def test_chunks_with_impossible_numbers_are_refused(damage: dict[str, float]) -> None:
    rollout = rollout_of(args_of())
    chunk, spec = chunks_of(rollout, 300)[0], rollout.policy.spec
    fields = spec.row_fields(open_environment(args_of(), 1).spec)
    check_chunk(chunk, spec, fields)
    ((name, value),) = damage.items()
    rows = chunk.rows | {name: chunk.rows[name].copy()}
    rows[name].flat[5] = value
    with pytest.raises(ValueError, match=r"finite|outside 0 to 1"):
        check_chunk(replace(chunk, rows=rows), spec, fields)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--env gymnasium:CartPole-v1", "--hindsight: the environment's observations have no achieved_goal"),
        ("--env gymnasium:tests.goals:Pictured-v0", "desired_goal of the same size, or a picture or text beside them"),
        ("--env gymnasium:tests.goals:Unjudged-v0", "--hindsight: the environment has no compute_reward"),
        ("--history-length 2", "--history-length: must be 1 with --hindsight, is 2"),
        ("--multi-step 2", "--hindsight: gives another goal to single transitions; leave out --multi-step"),
        ("--lstm-size 5", "--hindsight: gives another goal to single transitions; leave out --multi-step"),
    ],
)
def test_what_hindsight_cannot_do_is_refused(words: str, line: str) -> None:
    with pytest.raises(UserError, match=line):
        rollout_of(args_of(*words.split()))


def test_actors_need_the_option_that_changes_their_chunks() -> None:
    assert "hindsight" in args_of().shared


# --- what the learner samples ---


def numbered(B: int, k: int = 4) -> Batch:
    """Return transitions of which every number tells whose it is: 0 to 1 its own, from 10 on that of goal j."""
    rows = {
        "obs": torch.zeros(2, B, 5),
        "reward": torch.full((2, B), 0.5),
        "discount": torch.full((2, B), 0.25),
        "step_type": torch.ones(2, B, dtype=torch.uint8),
        "action": torch.zeros(2, B, dtype=torch.int32),
        GOAL: (10 + torch.arange(k).float()).view(1, 1, k, 1).expand(2, B, k, 2),
        REWARD: (20 + torch.arange(k).float()).expand(2, B, k),
        DISCOUNT: (30 + torch.arange(k).float()).expand(2, B, k),
    }
    return Batch(rows, {})


def test_so_many_transitions_have_another_goal_and_all_that_belongs_to_it() -> None:
    # Mutations: the goal in one of both rows, another goal's reward, a goal drawn for the whole batch.
    changed = with_other_goals(numbered(20_000), slice(1, 3), 0.8, torch.Generator().manual_seed(1))
    assert torch.equal(changed.obs[0], changed.obs[1]) and not changed.obs[..., [0, 3, 4]].any()
    goal = changed.obs[1, :, 1]
    assert torch.equal(goal, changed.obs[1, :, 2])
    values, counts = torch.unique(goal, return_counts=True)
    assert values.tolist() == [0, 10, 11, 12, 13]
    assert (counts / len(goal)).numpy() == pytest.approx(0.2, abs=0.01)
    is_own = goal == 0
    assert torch.equal(changed.reward[1], torch.where(is_own, 0.5, goal + 10))
    assert torch.equal(changed.discount[1], torch.where(is_own, 0.25, goal + 20))
    assert (changed.reward[0] == 0.5).all() and (changed.discount[0] == 0.25).all()


class Run:
    """A learner and its actor, in one process, which take turns."""

    def __init__(self, *more: str) -> None:
        self.args = args_of(*more)
        self.rollout = rollout_of(self.args)
        environment = open_environment(self.args, 0).spec
        self.learner: Any = make_agent(self.args, environment, CPU, learns=True, seed=6)
        self.replay = Replay(self.learner.spec, environment, 50_000, torch.Generator().manual_seed(1), CPU)
        self.trainer = make_trainer(self.learner, self.replay, self.args.batch_size, CPU)
        self.successes: list[bool] = []  # of each episode
        self.step = 0  # of each environment

    def play(self, steps: int) -> None:
        """Play so many steps in each environment with the learner's weights."""
        self.rollout.load(self.learner.model.published(), 0)
        for _ in range(steps):
            T = self.step * self.args.nb_env_per_actor
            self.step += 1
            for message in self.rollout.play(T, T):
                if isinstance(message, Chunk):
                    self.replay.add(ChunkId(0, self.replay.inserted), message)
                else:
                    assert isinstance(message, Episode)
                    self.successes.append(message.record["end"] == "game_over")


LEARNS = (
    "--hidden-size 64 --batch-size 64 --lr-SAC 3e-3 --discount 0.9 --target-rate 0.05 --entropy-share 0.05 "
    "--learn-start 1000 --nb-env-per-actor 8"
).split()


@pytest.mark.slow
@pytest.mark.parametrize(("probability", "least", "most"), [("0.8", 0.9, 1.0), ("0", 0.0, 0.3)])
def test_bits_become_as_desired_with_hindsight_alone(probability: str, least: float, most: float) -> None:
    run = Run(*LEARNS, "--hindsight", probability)
    run.play(257)
    for _ in range(500):
        run.play(2)
        run.trainer([Turn(0.0, 0)] * 2)
    assert least <= np.mean(run.successes[-100:]) <= most

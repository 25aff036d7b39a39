"""Both Rainbow agents: acting, publishing, initial priorities, updates. What is pure mathematics is tested in `ops`."""

import copy
import dataclasses
import itertools

import numpy as np
import pytest
import torch

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.ops.n_step import n_step
from rainbow_iqn_apex.agents.q_learning.agent import QLearningAgent
from rainbow_iqn_apex.environments.vector import VectorEnvironment
from rainbow_iqn_apex.memory import weights_packet, wire
from rainbow_iqn_apex.memory.chunk import Chunk
from rainbow_iqn_apex.memory.messages import Episode
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.memory.rows import Array, Arrays, Row, Rows, StepType
from rainbow_iqn_apex.programs.actor.rollout import Rollout
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.learner.update_scheduler import share_learned
from tests.agents.sequences import CPU, play, replay_with
from tests.chain.environment import ChainEnvironment
from tests.ground_truth.categorical import project as slow_project
from tests.ground_truth.quantile import quantile_huber_loss as slow_quantile_huber_loss
from tests.specs import discrete

ACTIONS = 6
ENVIRONMENT = discrete((5,), "uint8", ACTIONS)
SETTINGS = (
    "--hidden-size 9 --num-tau-samples 7 --num-tau-prime-samples 5 --num-quantile-samples 8 --atoms 11 --batch-size 10 "
    "--learn-start 200 --memory-capacity 4000 --history-length 3 --multi-step 2 --target-update 12 --lr-IQN 1e-2"
).split()


def arguments(name: str, *more: str) -> options.Args:
    args = options.parse([*SETTINGS, "--rainbow-only", str(int(name == "rainbow")), *more], "test", "")
    assert args.agent == name
    return args


def agent_of(name: str, *more: str, learns: bool = True) -> QLearningAgent:
    agent = make_agent(arguments(name, *more), ENVIRONMENT, CPU, learns=learns, seed=3)
    assert isinstance(agent, QLearningAgent)
    return agent


def rows_of(rng: np.random.Generator, kinds: list[StepType]) -> Rows:
    """Current rows of as many environments."""
    return Rows.stack(
        [Row(rng.integers(0, 256, 5, dtype=np.uint8), step_type, float(rng.normal()), 1.0) for step_type in kinds]
    )


def replay_of(agent: QLearningAgent) -> Replay:
    return replay_with(agent, ENVIRONMENT, play(agent, 700).chunks)


RAINBOWS = ("rainbow_iqn", "rainbow")
every_agent = pytest.mark.parametrize("name", RAINBOWS)


@every_agent
def test_actions_are_uniform_before_learn_start_and_greedy_after(name: str) -> None:
    agent, rng = agent_of(name, learns=False), np.random.default_rng(0)
    rows = rows_of(rng, [StepType.FIRST] * 300)
    random, _ = agent.act(rows, {}, 199)
    counts = np.bincount(random.actions, minlength=ACTIONS)
    assert counts.min() > 20, counts
    for step in (200, None):
        output, _ = agent.act(rows, {}, step)
        np.testing.assert_array_equal(output.extras["chosen"], output.extras["greedy"])


@every_agent
def test_noise_is_drawn_anew_every_replay_frequency_steps_and_at_every_load(name: str) -> None:
    agent, rng, state = agent_of(name, "--replay-frequency", "3", learns=False), np.random.default_rng(0), Arrays()
    seen = []
    for step in range(7):
        _, state = agent.act(rows_of(rng, [StepType.MID, StepType.MID]), state, step)
        seen.append(agent.network.fcnoisy_h_v.weight_epsilon.clone())
    same = [bool(torch.equal(a, b)) for a, b in itertools.pairwise(seen)]
    assert same == [True, True, False, True, True, False]
    agent.load(dict(agent.network.named_parameters()), 1)
    agent.act(rows_of(rng, [StepType.MID, StepType.MID]), state, 7)
    assert not torch.equal(agent.network.fcnoisy_h_v.weight_epsilon, seen[-1])


@every_agent
def test_the_frame_stack_starts_black_and_stays_bytes(name: str) -> None:
    agent, rng = agent_of(name, learns=False), np.random.default_rng(0)
    state: dict[str, Array] = {}
    for kinds in ([StepType.FIRST] * 2, [StepType.MID] * 2, [StepType.FIRST, StepType.MID]):
        rows = rows_of(rng, kinds)
        _, state = agent.act(rows, state, 0)
    assert state["stack"].dtype == np.uint8
    assert not state["stack"][0, :-1].any()
    assert state["stack"][1, :-1].any()
    np.testing.assert_array_equal(state["stack"][:, -1], rows.obs)


@every_agent
@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_published_weights_change_the_policy_but_not_the_noise(name: str, precision: str) -> None:
    learner = agent_of(name, "--precision", precision)
    actor = make_agent(arguments(name), ENVIRONMENT, CPU, learns=False, seed=8)
    assert isinstance(actor, QLearningAgent)
    learner.network.draw_noise(torch.Generator().manual_seed(5))
    published = weights_packet.unpack(wire.decode(weights_packet.pack(learner.network.published(), 3)))
    assert not any("epsilon" in key for key in published)
    before = {key: value.clone() for key, value in actor.network.named_buffers()}
    actor.load(published, 3)
    for key, value in actor.network.named_buffers():
        assert torch.equal(value, before[key])
    wanted = {key: value.detach() for key, value in learner.network.named_parameters()}
    for key, value in actor.network.named_parameters():
        assert torch.equal(value, published[key]), "as they were published"
        rounded = precision == "bfloat16" and key.startswith(("fcnoisy_h", "iqn_fc")) and "weight" in key
        assert torch.equal(value, wanted[key].bfloat16().float() if rounded else wanted[key])


def initial_loss(
    name: str, outputs: dict[str, Array], row: int, bootstrap: int, return_: float, discount: float
) -> float:
    """From the formulas: between the outputs for the action taken at a row and for the best one at another."""
    chosen, best = outputs["extras.chosen"][row], outputs["extras.greedy"][bootstrap]
    if name == "rainbow":
        support = np.linspace(-10, 10, 11)
        target = slow_project(support, np.exp(best)[None], np.array([return_]), np.array([discount]))[0]
        return float(-(target * chosen).sum())
    targets, taus = return_ + discount * best[:, None], outputs["extras.taus"][row][:, None]
    return float(slow_quantile_huber_loss(chosen[:, None], taus, targets, 1.0)[0]) * 7 / 8  # N / K


@every_agent
def test_initial_priorities_follow_each_row_and_its_own_bootstrap(name: str) -> None:
    agent = agent_of(name, "--reward-clip", "0.5")
    kept: list[dict[str, Array]] = []
    compute = agent.initial_priorities
    agent.initial_priorities = lambda rows: kept.append(rows) or compute(rows)  # type: ignore[method-assign, func-returns-value]
    chunk = play(agent, 100, T=0).chunks[0]  # random actions, which are seldom the best
    assert chunk.priorities is not None
    rows, prefix = kept[0], agent.spec.prefix
    for i in range(agent.spec.length):
        window = slice(prefix + i, prefix + i + 3)
        reward, discount, step_type = (
            torch.tensor(rows[key][window])[:, None] for key in ("reward", "discount", "step_type")
        )
        ahead = n_step(reward.clamp(-0.5, 0.5), discount, step_type, 0.99)
        bootstrap = prefix + i + int(ahead.steps)
        loss = initial_loss(name, rows, prefix + i, bootstrap, float(ahead.return_), float(ahead.discount))
        wanted = 0.0 if step_type[0] == StepType.LAST else loss**agent.priority_exponent
        assert chunk.priorities[i] == pytest.approx(wanted, rel=1e-4)
    assert (
        (chunk.priorities == 0).sum()
        == (rows["step_type"][prefix : prefix + agent.spec.length] == StepType.LAST).sum()
        > 0
    )


@every_agent
def test_the_target_network_follows_at_multiples_of_its_period_also_after_a_resume(name: str) -> None:
    # Mutation: count from the first update on.
    agent = agent_of(name)  # every 12 agent steps
    batch = replay_of(agent).sample(10, 0.4)

    def equal(agent: QLearningAgent) -> bool:
        online = dict(agent.network.named_parameters())
        return all(torch.equal(value, online[key]) for key, value in agent.target.named_parameters())

    followed = []
    for step in (44, 47, 51, 55):  # agent steps, of which not every update stands for as many
        agent.update(batch)
        agent.count_update(step)
        followed.append(equal(agent))
    resumed = make_agent(arguments(name), ENVIRONMENT, CPU, learns=True, seed=99)
    assert isinstance(resumed, QLearningAgent)
    for key, part in resumed.parts.items():
        part.load_state_dict(copy.deepcopy(agent.parts[key].state_dict()))
    for step in (59, 60, 64):
        resumed.update(batch)
        resumed.count_update(step)
        followed.append(equal(resumed))
    assert followed == [False, False, True, False, False, True, False]


def test_the_share_learned_grows_from_learn_start_to_the_end() -> None:
    args = arguments("rainbow", "--T-max", "1200")
    assert [share_learned(args, T) for T in (0, 200, 700, 1200, 5000)] == pytest.approx([0, 0, 0.5, 1, 1])


@every_agent
def test_rows_before_a_true_end_get_the_priority_of_their_reward_alone(name: str) -> None:
    """Through the player: what it keeps with a LAST row must not reach the loss of a row before it."""
    args = arguments(name, "--env", "chain", "--game", "chain", "--reward-clip", "0", "--multi-step", "1")
    args = dataclasses.replace(args, id_actor=0)
    agent = make_agent(args, discrete((5,), "uint8", 3), CPU, learns=False, seed=3)
    assert isinstance(agent, QLearningAgent)
    player = Rollout(args, agent, VectorEnvironment([ChainEnvironment(0)]))
    player.load(dict(agent.network.named_parameters()), 1)
    chunks = [m for _ in range(100) for m in player.play(0, 0) if isinstance(m, Chunk)]
    assert chunks
    for chunk in chunks:
        step_type = chunk.rows["step_type"][agent.spec.prefix :]
        before_end = np.flatnonzero(step_type[1 : agent.spec.length + 1] == StepType.LAST)
        others = np.flatnonzero(
            (step_type[: agent.spec.length] != StepType.LAST) & (step_type[1 : agent.spec.length + 1] != StepType.LAST)
        )
        # An untrained network is near 0 or near uniform everywhere: losses have one order of magnitude.
        assert chunk.priorities is not None
        assert chunk.priorities[before_end].max() < 2 * chunk.priorities[others].max()


def test_an_episode_is_told_at_the_agent_step_that_ended_it() -> None:
    # Mutation: tell it at the step before.
    args = dataclasses.replace(arguments("rainbow", "--env", "chain", "--game", "chain"), id_actor=0)
    agent = make_agent(args, discrete((5,), "uint8", 3), CPU, learns=False, seed=3)
    rollout = Rollout(args, agent, VectorEnvironment([ChainEnvironment(0)]))
    episodes = [m.record for step in range(50) for m in rollout.play(step, step + 1) if isinstance(m, Episode)]
    lengths = [int(record["length"]) for record in episodes]
    assert len(lengths) > 9
    assert [record["T_actors"] for record in episodes] == np.cumsum(lengths).tolist()

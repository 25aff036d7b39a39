"""The on-policy family: rounds that are learned from whole, and statistics that count each row once."""

from collections.abc import Iterator
from itertools import chain
from types import MethodType

import numpy as np
import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.impala.agent import Impala
from rainbow_iqn_apex.agents.networks.core import Inputs, RecurrentState
from rainbow_iqn_apex.agents.on_policy.agent import OnPolicy, Step
from rainbow_iqn_apex.agents.on_policy.losses import RoundRows
from rainbow_iqn_apex.agents.on_policy.statistics import PopArt
from rainbow_iqn_apex.agents.ops.masks import deal_rows, deal_sequences
from rainbow_iqn_apex.args import Args
from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.environments.interface import Environment
from rainbow_iqn_apex.environments.vector import VectorEnvironment
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId
from rainbow_iqn_apex.memory.queue import Queue
from rainbow_iqn_apex.memory.rows import StepType
from rainbow_iqn_apex.programs.actor.rollout import Rollout
from rainbow_iqn_apex.programs.agent import make_agent
from rainbow_iqn_apex.programs.common import open_environment
from tests.specs import ATARI

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("one_thread")
MEMBERS = ["ppo", "vmpo", "awr", "vpg", "vtrace"]
TASKS = {"box": "gymnasium:Pendulum-v1", "discrete": "gymnasium:CartPole-v1"}
SHORT = "--unroll-length 16 --minibatches 3 --epochs 2 --nb-env-per-actor 2 --T-max 1000 --mlp-size 8".split()

LSTM = "--lstm-size 6 --hidden-size 9 --minibatch-split sequences --minibatches 1"


class Play:
    """A learner and its actors, in one process, which take turns."""

    def __init__(self, words: list[str], actors: int = 1) -> None:
        self.args: Args = options.parse([*SHORT, "--nb-actor", str(actors), *words], "test", "")
        self.rollouts = [self._rollout(actor) for actor in range(actors)]
        agent = make_agent(self.args, self._environments(0)[0].spec, CPU, learns=True, seed=1)
        assert isinstance(agent, OnPolicy)
        self.learner = agent
        self._sent = 0

    def _environments(self, actor: int) -> list[Environment]:
        return [open_environment(self.args, 10 * actor + env) for env in range(self.args.nb_env_per_actor)]

    def _rollout(self, actor: int) -> Rollout:
        environments = self._environments(actor)
        agent = make_agent(self.args, environments[0].spec, CPU, learns=False, seed=5 + actor)
        return Rollout(self.args, agent, VectorEnvironment(environments))

    def play(self) -> Batch:
        """Play a round with the learner's weights; return all that was played."""
        queue = Queue(self.learner.spec, 10_000, None, torch.Generator(), CPU)
        for rollout in self.rollouts:
            rollout.load(self.learner.model.published(), 0)
            messages = [message for step in range(self.args.own.round_rows) for message in rollout.play(step, step)]
            for message in (*messages, *rollout.finish_round()):
                if isinstance(message, Chunk):
                    self._sent += 1
                    queue.add(ChunkId(0, self._sent), message)
        return queue.sample(None)


@pytest.mark.parametrize("name", ["ppo", "impala"])
@pytest.mark.parametrize("architecture", ["shallow", "data-efficient", "deep", "deep-football"])
def test_first_policies_are_nearly_uniform(architecture: str, name: str) -> None:
    # Mutations: residual stacks orthogonal, too, behind which values and their gradients are far beyond the clip;
    # PyTorch's first weights, of all layers, or of all but the heads: features of different pictures differ by a
    # fortieth of these.
    args = options.parse(["--agent", name, "--architecture", architecture], "test", "")
    agent = make_agent(args, ATARI, CPU, learns=True, seed=2)
    assert isinstance(agent, OnPolicy | Impala)
    none = torch.zeros(1, 8)
    obs = torch.randint(256, (1, 8, 4, 84, 84), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    with torch.inference_mode():
        parameters, *_ = agent.network(Inputs(obs, none.bool(), none, none.long()), ())
    assert parameters.std() < 0.025
    if "deep" not in architecture:
        assert parameters.std() > 0.002, "pictures make a difference"


def watch_steps(agent: OnPolicy) -> list[tuple[RoundRows, Tensor]]:
    """Keep the rows of each update, and the logarithms of its ratios [t, n] before it."""
    seen: list[tuple[RoundRows, Tensor]] = []
    step = agent._step

    def watched(_self: OnPolicy, rows: RoundRows, recurrent: RecurrentState, places: Tensor) -> Step:
        begun = tuple(part[places[0]] for part in recurrent)
        present = agent.network(rows.inputs, begun)[0]  # [t, n, P]
        pi, mu = (agent._policy.distribution(of) for of in (present, rows.parameters))
        ratio = pi.log_prob(rows.raw) - mu.log_prob(rows.raw)  # [t, n]
        seen.append((rows, torch.where(rows.learnable, ratio, 0).detach()))
        return step(rows, recurrent, places)

    agent._step = MethodType(watched, agent)  # type: ignore[method-assign]
    return seen


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("actors", [1, 3])
@pytest.mark.parametrize("network", ["", LSTM])
def test_the_first_update_of_a_round_is_exactly_on_policy(task: str, actors: int, network: str) -> None:
    # Mutations: publish the new statistics of observations a round late; act with other parameters than recorded;
    # take the recurrent state of another sequence, or of the row after.
    play = Play(["--agent", "ppo", "--env", TASKS[task], "--lr-on-policy", "0.01", *network.split()], actors)
    seen = watch_steps(play.learner)
    for _ in range(3):
        seen.clear()
        play.learner.update(play.play(), 0.0)
        assert seen[0][1].abs().max() < 1e-5
        assert seen[-1][1].abs().max() > 1e-3, "later ones are not"


@pytest.mark.parametrize("task", TASKS)
def test_each_learnable_row_is_dealt_out_once_an_epoch(task: str) -> None:
    play = Play(["--agent", "ppo", "--env", TASKS[task]], 2)
    seen = watch_steps(play.learner)
    for _ in range(8):  # some episodes of CartPole end
        seen.clear()
        batch = play.play()
        play.learner.update(batch, 0.0)
        learnable = int((batch.step_type[:-1] != StepType.LAST).sum())
        assert learnable == play.args.round_steps
        for epoch in (seen[:3], seen[3:]):
            dealt = torch.cat([rows.inputs.obs[0].flatten(1) for rows, _ in epoch])  # [N, numbers]
            assert len(dealt) == learnable and len(torch.unique(dealt, dim=0)) == learnable


def test_rows_and_sequences_are_dealt_out_whole_and_shuffled() -> None:
    learnable = torch.rand(7, 5, generator=torch.Generator().manual_seed(1)) < 0.8
    generator = torch.Generator().manual_seed(2)
    rows = [part[0].tolist() for part in deal_rows(learnable, 4, generator)]
    dealt = list(chain.from_iterable(rows))
    assert sorted(dealt) == learnable.flatten().nonzero().flatten().tolist() != dealt
    assert {len(part) for part in rows} <= {len(dealt) // 4, len(dealt) // 4 + 1}
    parts = list(deal_sequences(learnable, 2, generator))
    assert sorted(torch.cat([part[0] for part in parts]).tolist()) == [0, 1, 2, 3, 4]
    assert all(torch.equal(part - part[0], (5 * torch.arange(7)).unsqueeze(1).expand_as(part)) for part in parts)


def test_updates_have_as_many_rows_though_some_sequences_are_short() -> None:
    # Mutation: deal sequences out by their number alone.
    lengths = torch.tensor([124, 123, 6, 122, 124, 6, 4, 123, 5, 5, 122, 4, 6, 123, 5, 122])
    learnable = torch.arange(128).unsqueeze(1) < lengths  # [T, B]
    generator, dealt = torch.Generator().manual_seed(3), set()
    for _ in range(20):
        parts = [part[0] for part in deal_sequences(learnable, 4, generator)]  # [b] each
        assert sorted(torch.cat(parts).tolist()) == list(range(16))
        assert all(abs(int(lengths[part].sum()) - 256) <= 10 for part in parts)
        dealt.add(tuple(sorted(parts[0].tolist())))
    assert len(dealt) > 15, "shuffled"


@pytest.mark.parametrize("split", ["rows", "sequences"])
def test_a_round_of_which_messages_are_lost_makes_fewer_updates(split: str) -> None:
    # Mutation: end the run where a round has less than one row or sequence for each update.
    play = Play(["--agent", "ppo", "--env", TASKS["box"], "--minibatches", "2", "--minibatch-split", split])
    seen = watch_steps(play.learner)
    batch = play.play()
    left = {name: rows[:, :1].clone() for name, rows in batch.rows.items()}
    left["step_type"][1:] = StepType.LAST  # one row of one sequence is left
    metrics = play.learner.update(Batch(left, {}), 0.0).metrics
    assert all(metric.isfinite() for metric in metrics.values())
    assert [int(rows.learnable.sum()) for rows, _ in seen] == [1] * 2, "one in each epoch"


def rounds(play: Play, count: int) -> Iterator[Batch]:
    for _ in range(count):
        batch = play.play()
        yield batch
        play.learner.update(batch, 0.5)


def test_statistics_count_each_row_and_each_reward_once() -> None:
    # Mutation: count the row after the sequence, too, which is the next one's first.
    play = Play("--agent ppo --env gymnasium:Pendulum-v1".split(), 2)
    obs, returns, sums = [], [], np.zeros(4)  # discounted rewards, by environment
    for batch in rounds(play, 6):
        obs.append(batch.obs[:-1].numpy())
        for reward in batch.reward[1:].numpy():
            sums = 0.99 * sums + reward
            returns.append(sums)
    seen, statistics, normaliser = (
        np.concatenate(obs).astype(float),
        play.learner._statistics,
        play.learner.network.normaliser,
    )
    assert statistics._observations.mean.numpy() == pytest.approx(seen.mean((0, 1)), abs=1e-9)
    assert statistics._returns.variance.item() == pytest.approx(np.var(returns), rel=1e-5)
    assert normaliser is not None
    assert normaliser.mean.numpy() == pytest.approx(seen.mean((0, 1)), abs=1e-6)
    assert normaliser.scale.numpy() == pytest.approx(1 / seen.std((0, 1)), rel=1e-4)


@pytest.mark.parametrize("network", ["", LSTM])
def test_bytes_are_normalised_in_the_unit_that_their_statistics_have(network: str) -> None:
    # Mutations: normalise fractions by statistics of bytes; let the torso divide what is normalised by 255.
    play = Play([*"--agent ppo --env gymnasium:tests.environments.spaced:Memory-v0".split(), *network.split()])
    [seen] = rounds(play, 1)
    learned = seen.obs[:-1][seen.step_type[:-1] != StepType.LAST].double()  # [N, 5]
    wanted = (learned - learned.mean(0)) / learned.std(0, correction=0)
    network_, shown = play.learner.network, list[Tensor]()
    assert network_.normaliser is not None
    body = network_.policy_body if network_.core is None else network_.core.torso.body
    body.register_forward_pre_hook(lambda _module, inputs: shown.append(inputs[0]))
    count = len(learned)
    inputs = Inputs(
        learned.byte().view(count, 1, 1, 5), torch.ones(count, 1, dtype=torch.bool), torch.zeros(count, 1),
        torch.zeros(count, 1, dtype=torch.int32),
    )  # fmt: skip
    recurrent = tuple(torch.zeros(1, 6) for _ in range(2)) if network else ()
    play.learner.network(inputs, recurrent)
    torch.testing.assert_close(shown[0].view(count, 5).double(), wanted, rtol=1e-4, atol=1e-4)


def check_unit(member: str, task: str, more: str = "") -> None:
    """Check that the policy's gradients stay with rewards * 100, though nothing normalises, clips or bounds them."""
    free = f"--popart True --reward-clip 0 --normalise-rewards False --max-gradient-norm 0 {more}"
    play, other = (Play(["--agent", member, "--env", TASKS[task], *free.split()]) for _ in range(2))
    assert other.learner.network.popart is not None
    other.learner.network.popart.std.mul_(100)  # its first values are in the unit of its rewards, too
    for _ in range(2):
        batch = play.play()
        play.learner.update(batch, 0.5)
        other.learner.update(batch._replace(rows={**batch.rows, "reward": 100 * batch.reward}), 0.5)
        networks = (play.learner.network, other.learner.network)
        for (name, one), two in zip(networks[0].named_parameters(), networks[1].parameters(), strict=True):
            if one.grad is not None and two.grad is not None:
                torch.testing.assert_close(two.grad, one.grad, rtol=2e-2, atol=1e-3 * float(one.grad.norm()), msg=name)


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("more", ["", "--normalise-advantages False"])
def test_with_popart_the_unit_of_rewards_changes_no_gradient(member: str, task: str, more: str) -> None:
    # Mutation: in the test below.
    check_unit(member, task, more)


@pytest.mark.parametrize("member", MEMBERS)
def test_the_check_of_the_unit_notices_advantages_in_that_of_rewards(
    member: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PopArt, "scale_advantage", lambda _self, advantage: advantage)
    with pytest.raises(AssertionError):
        check_unit(member, "discrete", "--normalise-advantages False")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            "--minibatches 33",
            "--minibatches: a round has 32 rows: give as many at most, or more --nb-env-per-actor, is 33",
        ),
        (
            "--minibatches 3 --minibatch-split sequences",
            "--minibatches: a round has 2 sequences, one of each environment: give as many at most, or more "
            "--nb-env-per-actor, is 3",
        ),
        ("--lstm-size 5", "--minibatch-split: an LSTM learns from whole sequences, give sequences"),
    ],
)
def test_what_a_round_cannot_give_is_said_before_the_run(words: str, error: str) -> None:
    with pytest.raises(UserError) as raised:
        options.parse([*SHORT, "--agent", "ppo", "--env", TASKS["box"], *words.split()], "test", "")
    assert str(raised.value) == error

"""A policy alone plays; what a learner publishes reaches it whole, and its outputs name the weights behind them."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.networks.network import Network, acting_tensors
from rainbow_iqn_apex.agents.policy import Acted, ActorOutput, Policy
from rainbow_iqn_apex.agents.registry import AGENTS
from rainbow_iqn_apex.environments.interface import EpisodeLostError
from rainbow_iqn_apex.environments.vector import VectorEnvironment
from rainbow_iqn_apex.memory import weights_packet, wire
from rainbow_iqn_apex.memory.broker.actor_client import Saved
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkSpec
from rainbow_iqn_apex.memory.messages import Episode, Message
from rainbow_iqn_apex.memory.rows import Array, Arrays, Row, Rows, StepType
from rainbow_iqn_apex.programs import snapshot
from rainbow_iqn_apex.programs.actor.rollout import ResumePoint, Rollout
from rainbow_iqn_apex.programs.agent import make_agent
from tests import specs
from tests.chain.environment import ChainEnvironment
from tests.small import CARTPOLE, FAMILIES, FREE, SHORT_CHAIN, TINY

CPU = torch.device("cpu")
LENGTH = 5
FIRST, MID, LAST = StepType


class Remote(Policy):
    """Stands for a policy that computes elsewhere, where a new version acts from every fourth call on."""

    spec = ChunkSpec(1, 0, LENGTH, 1, LENGTH, LENGTH, prioritised=False)

    def __init__(self) -> None:
        self.calls = 0

    def act(self, rows: Rows, state: Arrays, step: int | None, places: Array | None = None) -> Acted:  # noqa: ARG002
        self.calls += 1
        return ActorOutput(np.zeros(len(rows.reward), np.int64), {}, self.calls // 4), state

    def load(self, weights: dict[str, Tensor], version: int) -> None:
        assert not weights, f"its weights are elsewhere, not those of version {version}"


def rollout_of(policy: Policy, kind: type[ChainEnvironment] = ChainEnvironment, mode: Sequence[str] = ()) -> Rollout:
    args = options.parse([*SHORT_CHAIN, *"--nb-env-per-actor 2 --id-actor 0".split(), *mode], "test", "")
    return Rollout(args, policy, VectorEnvironment([kind(seed) for seed in range(2)]))


def chunks_of(messages: list[Message]) -> list[Chunk]:
    return [message for message in messages if isinstance(message, Chunk)]


def test_a_policy_alone_plays_and_its_chunks_carry_the_versions_that_it_names() -> None:
    # Mutation: leave out `version = output.version` in `Rollout._add`.
    policy = Remote()
    rollout = rollout_of(policy)
    versions = set()
    for step in range(40):
        for chunk in chunks_of(rollout.play(step, step)):
            assert chunk.version == policy.calls // 4
            versions.add(chunk.version)
    assert len(versions) > 5
    other = rollout_of(Remote())
    other.restore(Saved(rollout.snapshot(ResumePoint(0, 40)), 0))
    rewards = [
        [list(chunk.rows["reward"]) for step in range(20) for chunk in chunks_of(each.play(step, step))]
        for each in (rollout, other)
    ]
    assert rewards[0] == rewards[1] != []


@pytest.mark.parametrize("mode", [[], [*FREE, "--force"]], ids=["lockstep", "free"])
def test_an_episode_that_cannot_be_continued_ends_as_cut_off(
    mode: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    # Mutations: the saved MID row; an episode in the log; lockstep's promise as if nothing had happened.
    class Lost(ChainEnvironment):
        def restore(self, arrays: Arrays) -> None:
            raise EpisodeLostError(f"no way to {len(arrays)} arrays")

    one, other = rollout_of(Remote(), mode=mode), rollout_of(Remote(), Lost, mode=mode)
    for step in range(5):  # episodes of three steps
        one.play(step, step)
    other.restore(Saved(one.snapshot(ResumePoint(0, 5)), 0))
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1 and "no way" in printed and ("promises" in printed) == (not mode)
    messages = [message for step in range(5, 9) for message in other.play(step, step)]
    for chunk in (chunks := chunks_of(messages)):
        assert chunk.rows["step_type"].tolist() == [MID, LAST, FIRST, MID, MID, LAST]
        assert chunk.rows["discount"].tolist() == [1, 1, 1, 1, 1, 0]
    found = [message.record for message in messages if isinstance(message, Episode)]
    assert [(record["episode"], record["length"]) for record in found] == [(1, 3)] * len(chunks) == [(1, 3)] * 2


@pytest.mark.parametrize("name", ["rainbow_iqn", *FAMILIES])
def test_outputs_name_the_weights_that_were_loaded(name: str) -> None:
    # Mutation: leave out `self.version = version` in `Agent.load`.
    words = FAMILIES.get(name, [*SHORT_CHAIN, *TINY])
    args = options.parse([*words, *"--nb-env-per-actor 2 --id-actor 0".split()], "test", "")
    learner, actor = (make_agent(args, ChainEnvironment.spec, CPU, learns=learns, seed=1) for learns in (True, False))
    with torch.no_grad():
        for seed, tensor in enumerate(learner.loaded().values()):
            tensor.copy_(torch.rand(tensor.shape, generator=torch.Generator().manual_seed(seed)))
    packet = wire.decode(weights_packet.pack(learner.model.published(), 7))
    weights = weights_packet.weights_for(actor.loaded(), packet)
    rollout = Rollout(args, actor, VectorEnvironment([ChainEnvironment(seed) for seed in range(2)]))
    rollout.load(weights, 7)
    rows = Rows.stack([ChainEnvironment(0).reset()] * 2)
    assert actor.act(rows, {}, 10**6)[0].version == 7
    wanted = learner.model.published()
    assert all(torch.equal(tensor, wanted[key].to(tensor.dtype)) for key, tensor in actor.loaded().items())
    statistics = {"vmpo": {"popart.mean", "popart.std"}, "ppo": {"normaliser.mean", "normaliser.scale"}}
    assert statistics.get(name, set()) <= weights.keys()
    assert not any("epsilon" in key or "target_" in key for key in weights)


class Normalised(Network):
    """Has statistics of every kind of number, and noise of its own."""

    OWN_BUFFERS = frozenset({"noise"})

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.statistics = nn.Linear(3, 2), nn.BatchNorm1d(2)
        self.register_buffer("noise", torch.zeros(2))
        self.register_buffer("constant", torch.zeros(2), persistent=False)


def test_statistics_travel_beside_the_weights() -> None:
    # Mutations: publish parameters alone; publish all buffers.
    learner, actor = Normalised(), Normalised()
    learner.statistics(learner.layer(torch.rand(5, 3)))
    names = {"layer.weight", "layer.bias", "statistics.weight", "statistics.bias", "statistics.running_mean",
             "statistics.running_var", "statistics.num_batches_tracked"}  # fmt: skip
    assert acting_tensors(actor).keys() == names
    packet = weights_packet.pack(learner.published(), 1)
    assert len(packet) <= weights_packet.most_bytes(acting_tensors(actor)) + wire.MAX_HEADER_BYTES
    found = weights_packet.weights_for(acting_tensors(actor), wire.decode(packet))
    torch.testing.assert_close(found, acting_tensors(learner), rtol=0, atol=0)
    assert found["statistics.num_batches_tracked"] == 1


def test_statistics_are_saved_beside_the_weights(tmp_path: Path) -> None:
    # Mutations: refuse what is no float; take whole numbers for weights.
    model = Normalised()
    agent: Any = SimpleNamespace(model=model, parts={"model": model})
    snapshot.save(tmp_path / "x.pth", agent, {})
    weights = snapshot.load(tmp_path / "x.pth", "--model")["model_state_dict"]
    assert weights["statistics.num_batches_tracked"].dtype == torch.int64
    assert list(snapshot._misfits(weights, model.state_dict(), lambda _: {})) == []
    whole = weights | {"layer.bias": torch.zeros(2, dtype=torch.int64)}
    assert list(snapshot._misfits(whole, model.state_dict(), lambda _: {})) == [
        "--model: the snapshot's layer.bias is of whole numbers"
    ]


@pytest.mark.parametrize(
    "words",
    [
        *AGENTS,
        *(f"{name} --noisy-std 0" for name in ("rainbow_iqn", "rainbow")),
        *(f"{name} --stochastic" for name in ("impala", "sac", "ppo")),
    ],
)
def test_an_agent_describes_how_it_acts_in_an_evaluation(words: str) -> None:
    # Mutations: describe the defaults; describe the actions of training.
    args = options.parse([*CARTPOLE, *"--hidden-size 8 --mlp-size 8 --agent".split(), *words.split()], "test", "")
    agent = make_agent(args, specs.CARTPOLE, CPU, learns=False, seed=1)
    rows = Rows.stack([Row(np.full(4, 0.1, np.float32), StepType.FIRST, 0.0, 1.0)] * 20_000)
    protocol = agent.acting_protocol()
    assert protocol is not None and ("\n" not in protocol.sentence)

    def act() -> Array:
        agent.load(agent.loaded(), 0)  # a network with noise draws it again
        return agent.act(rows, {}, None)[0].actions

    actions = act()
    others = min((actions == choice).mean() for choice in (0, 1))
    if protocol.drawn:
        assert others > 0.05
    else:
        assert protocol.epsilon / 4 <= others <= protocol.epsilon, "one of two actions, and the share of the other"
    thoughts = []
    for _ in range(2):
        act()
        thought = agent.inspect(Rows.stack([rows.row(0)]), {})
        thoughts.append(thought and thought.actions.tolist())
    assert (thoughts[0] != thoughts[1]) == protocol.noise

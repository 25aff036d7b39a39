"""Every agent that learns from sequences sees the same when it learns as when it acts, and resets at FIRST."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from rainbow_iqn_apex.agents.networks import core
from rainbow_iqn_apex.agents.networks.encoder import EncoderSpec
from rainbow_iqn_apex.agents.sequences import SequenceAgent
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.chunk import Chunk
from rainbow_iqn_apex.memory.environment_spec import ActionSpec, Box, Discrete, Field, MultiDiscrete
from rainbow_iqn_apex.memory.rows import Rows, StepType
from tests.agents.sequences import SETTINGS, agent_of, play, random_row

pytestmark = pytest.mark.usefixtures("one_thread")
every_agent = pytest.mark.parametrize("name", SETTINGS)
# Those that record what the network said; for PQN, which records nothing, see test_pqn.
every_recording_agent = pytest.mark.parametrize("name", sorted(SETTINGS.keys() - {"pqn"}))
ON_POLICY = {"pqn", "ppo", "vmpo-lstm"}
recurrent = pytest.mark.parametrize("name", ["impala-lstm", "impala-mix", "vmpo-lstm", "sac-lstm", "r2d2"])


def outputs_of(agent: Any, batch: Batch) -> torch.Tensor:
    """What the network says at each row with a full stack, [T, B, ...], as the agent's update has it."""
    inputs, recurrent = agent.learning_inputs(batch)
    with torch.no_grad():
        first, *_ = agent.network(inputs, recurrent)
    return torch.as_tensor(first)


def differences(agent: Any, chunks: list[Chunk]) -> float:
    """Largest difference between what the network said when acting and what it says of the chunks."""
    batch = in_order(chunks)
    found, skipped = outputs_of(agent, batch), agent.spec.stack - 1
    (name,) = {"chosen", "log_policy", "parameters"} & {key.removeprefix("extras.") for key in batch.rows}
    said = batch.rows[f"extras.{name}"][skipped:]
    if name == "chosen":
        found = found.gather(2, batch.action[skipped:].long().unsqueeze(2)).squeeze(2)
    return float((found - said).abs().max())


def with_outputs(agent: Any) -> Any:
    """Let chunks of a replay carry, for comparison, R2D2's values of the actions chosen, or the policy of SAC."""
    if agent.buffer == "replay":
        chosen, parameters = ("chosen", Field((), "float32")), ("parameters", Field((3,), "float32"))
        agent.spec = replace(agent.spec, extras=(chosen if agent.spec.prioritised else parameters,))
    return agent


def weights_of(agent: Any) -> dict[str, torch.Tensor]:
    """All weights of an agent, not only those that act."""
    modules = {name: part for name, part in agent.parts.items() if isinstance(part, torch.nn.Module)}
    return {f"{name}.{key}": value for name, part in modules.items() for key, value in part.named_parameters()}


def in_order(chunks: list[Chunk]) -> Batch:
    """A batch of the chunks in their order, whatever the buffer."""
    rows = {name: torch.from_numpy(np.stack([c.rows[name] for c in chunks], 1)) for name in chunks[0].rows}
    state = {name: torch.from_numpy(np.stack([c.state[name] for c in chunks])) for name in chunks[0].state}
    return Batch(rows, state, torch.ones(len(chunks)))


@every_recording_agent
def test_learning_sees_what_acting_saw(name: str) -> None:
    # Mutations: a state of any other row, a last action or reward shifted by a row, no reset at FIRST.
    agent = with_outputs(agent_of(name))
    chunks = play(agent, 300).chunks[2:]  # before these there is padding, at which nobody acted
    assert len(chunks) > 10
    assert differences(agent, chunks) < 1e-5


@recurrent
@pytest.mark.parametrize("shift", [-1, 1, 4])
def test_the_state_of_any_other_row_is_noticed(name: str, shift: int) -> None:
    """Among them the state `burn-in` rows later, a common mistake."""
    agent = with_outputs(agent_of(name))
    played = play(agent, 300, longest=100)
    period, first = agent.spec.period, agent.spec.stack - 1 - agent.spec.prefix
    wrong = []
    for number, chunk in enumerate(played.chunks[3:], start=3):
        row = number * period + first + shift
        assert all(np.array_equal(played.states[row - shift][key], value) for key, value in chunk.state.items())
        wrong.append(replace(chunk, state=played.states[row]))
    assert differences(agent, wrong) > 1e-3


@recurrent
def test_nothing_of_an_episode_reaches_the_next_one(name: str) -> None:
    agent, rng = agent_of(name, learns=False), np.random.default_rng(0)
    rows = [random_row(rng, StepType.FIRST, 5) for _ in range(4)]
    first = random_row(rng, StepType.LAST, 5)
    states: list[dict[str, Any]] = [{}, {}]
    for row in rows:
        _, states[0] = agent.act(Rows.stack([row]), states[0], None)
    said = []
    for state in states:
        agent.generator.manual_seed(1)
        output, _ = agent.act(Rows.stack([first]), state, 10**6)
        said.append(output.extras)
    for key, value in said[0].items():
        np.testing.assert_array_equal(value, said[1][key], key)


def test_acting_in_bfloat16_remembers_nearly_the_same() -> None:
    frame, dtypes = Field((84, 84), "uint8"), (torch.float32, torch.bfloat16)
    torsos = [EncoderSpec(frame, 1, "data-efficient", 16, dtype, False) for dtype in dtypes]
    specs = [core.CoreSpec(torso, Discrete(3), 8, 20) for torso in torsos]
    exact, rounded = (core.Core(spec) for spec in specs)
    rounded.load_state_dict(exact.state_dict())
    assert rounded.lstm is not None
    assert rounded.lstm.weight_hh_l0.dtype == torch.bfloat16
    generator = torch.Generator().manual_seed(1)
    states = [(torch.zeros(5, 8), torch.zeros(5, 8))] * 2
    for _ in range(30):
        obs = torch.randint(256, (1, 5, 1, 84, 84), generator=generator, dtype=torch.uint8)
        first, reward = torch.rand(2, 1, 5, generator=generator)
        inputs = core.Inputs(obs, first < 0.1, reward, torch.ones(1, 5, dtype=torch.int64))
        with torch.no_grad():
            states = [part(inputs, recurrent)[1] for part, recurrent in zip((exact, rounded), states, strict=True)]
        torch.testing.assert_close(*states, rtol=0, atol=0.03)


@pytest.mark.parametrize(
    ("spec", "last", "shown"),
    [
        (Discrete(3), [2, 0], [[0, 0, 1], [1, 0, 0]]),
        (MultiDiscrete((2, 3)), [[1, 0], [0, 2]], [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]),
        (Box(2), [[0.25, -1], [1, 0]], [[0.25, -1], [1, 0]]),
    ],
)
def test_an_lstm_sees_last_actions_of_every_kind_but_at_first(
    spec: ActionSpec, last: list[Any], shown: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Mutation: show the second choice with the numbers of the first.
    torso = EncoderSpec(Field((4,), "float32"), 1, "data-efficient", 5, torch.float32, True)
    network, seen, run = core.Core(core.CoreSpec(torso, spec, 7, 20)), list[torch.Tensor](), core._run

    def noting(
        lstm: torch.nn.LSTM, x: torch.Tensor, recurrent: core.RecurrentState
    ) -> tuple[torch.Tensor, core.RecurrentState]:
        seen.append(x)
        return run(lstm, x, recurrent)

    monkeypatch.setattr(core, "_run", noting)
    action = torch.from_numpy(np.array([last, last, last], spec.field.dtype))  # [T, B, ...]
    first = torch.tensor([[False, False], [False, False], [False, True]])
    inputs = core.Inputs(torch.ones(3, 2, 1, 4), first, torch.ones(3, 2), action)
    network(inputs, (torch.zeros(2, 7), torch.zeros(2, 7)))
    actions = torch.cat(seen)[..., 6:]  # [T, B, A] behind features and reward
    assert actions.shape[-1] == core.action_numbers(spec)
    assert actions.tolist() == [shown, shown, [shown[0], [0] * len(shown[1])]]


@recurrent
def test_stretches_between_resets_compute_what_single_rows_do(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = agent_of(name)
    batch = in_order(play(agent, 200).chunks)
    found = outputs_of(agent, batch)
    monkeypatch.setattr(core, "_starts", lambda first: list(range(len(first))))  # as on a GPU
    torch.testing.assert_close(outputs_of(agent, batch), found)


def changed_at(batch: Batch, mask: torch.Tensor, name: str) -> Batch:
    """The batch with other actions, or other outputs of the actor, where a mask [T, B] says so."""
    rows = dict(batch.rows)
    noise = torch.rand(rows[name].shape) if rows[name].is_floating_point() else (rows[name] + 1) % 3
    rows[name] = torch.where(mask.view(mask.shape + (1,) * (rows[name].dim() - 2)), noise, rows[name])
    return batch._replace(rows=rows)


@every_agent
def test_nothing_is_learned_from_a_last_row(name: str) -> None:
    agent = agent_of(name, "--max-gradient-norm", "0")
    batch = in_order(play(agent, 200).chunks)
    last = batch.step_type == StepType.LAST
    twin = copy.deepcopy(agent)
    agent.update(batch, 0.1)
    for column in ("action", *(key for key in batch.rows if key.startswith("extras."))):
        batch = changed_at(batch, last, column)
    twin.update(batch, 0.1)
    torch.testing.assert_close(weights_of(twin), weights_of(agent), rtol=0, atol=0)


@every_agent
def test_a_true_end_is_not_bootstrapped_from_and_a_truncation_is(name: str) -> None:
    agent = agent_of(name, "--max-gradient-norm", "0")
    batch = in_order(play(agent, 200).chunks)
    for discount, is_read in ((0.0, False), (1.0, True)):
        rows = dict(batch.rows)
        last = rows["step_type"] == StepType.LAST
        rows["discount"] = torch.where(last, discount, rows["discount"])
        one, other = copy.deepcopy(agent), copy.deepcopy(agent)
        one.update(batch._replace(rows=rows), 0.1)
        rows["obs"] = torch.where(last.unsqueeze(2), 255 - rows["obs"], rows["obs"])
        other.update(batch._replace(rows=rows), 0.1)
        found = weights_of(other)
        assert all(torch.equal(value, found[key]) for key, value in weights_of(one).items()) != is_read


@pytest.mark.parametrize(("name", "period"), [("r2d2", "--target-period"), ("impala", "--impact-target-period")])
def test_a_target_network_is_copied_after_every_so_many_updates(name: str, period: str) -> None:
    # Mutation: count agent steps.
    agent = agent_of(name, period, "3")
    target = agent.target if name == "r2d2" else agent._target
    batch = in_order(play(agent, 100).chunks)
    for made in range(1, 8):
        before = [parameter.clone() for parameter in target.parameters()]
        agent.update(batch, 0.0)
        agent.count_update(100 * made)
        pairs = zip(target.parameters(), before if made % 3 else agent.network.parameters(), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs)


@every_agent
def test_published_weights_make_the_actor_say_the_same(name: str) -> None:
    learner, actor = agent_of(name), agent_of(name, learns=False, seed=8)
    row, rng = [random_row(np.random.default_rng(1), StepType.LAST, 5)], 5
    said = []
    for agent in (learner, actor):
        if agent is actor:
            actor.load(learner.network.published(), 1)
        agent.generator.manual_seed(rng)
        said.append(agent.act(Rows.stack(row), {}, 10**6)[0].extras)
    for key, value in said[0].items():
        np.testing.assert_array_equal(value, said[1][key])


@pytest.mark.slow
@every_agent
def test_learning_lowers_the_loss_on_a_fixed_batch(name: str) -> None:
    rates = "--lr-IMPALA 3e-3 --lr-R2D2 1e-2 --lr-on-policy 1e-2 --lr-PQN 1e-2 --lr-SAC 1e-2 --entropy-cost 0"
    learned_anew = name in ON_POLICY  # targets move with the values behind them: without discount they stay
    more = "--discount 0 --kl-limit 0 --kl-cost 0" if learned_anew else ""
    if name == "impala-mix":  # all rows count, whatever the policy
        more = "--trust-threshold 0 --impact-target-period 0"
    agent = agent_of(name, *rates.split(), *more.split())
    batch = in_order(play(agent, 100).chunks)
    key = "loss" if name in ("r2d2", "pqn") else "value_loss"
    losses = [float(agent.update(batch, 0.0).metrics[key]) for _ in range(60)]
    assert np.mean(losses[-10:]) < 0.8 * np.mean(losses[:10])


def test_every_sequence_agent_is_here() -> None:
    from rainbow_iqn_apex.agents.registry import AGENTS

    classes = {entry.load() for entry in AGENTS.values()}
    here = {AGENTS[words.split()[1]].load() for words in SETTINGS.values()}
    assert {kind for kind in classes if issubclass(kind, SequenceAgent)} == here

"""Learners that share a batch make the update of one learner with the whole batch, whatever the agent."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rainbow_iqn_apex import args as options
from rainbow_iqn_apex.agents.distributions import Normal
from rainbow_iqn_apex.agents.interface import Update
from rainbow_iqn_apex.agents.ops.ranks import ALONE, Ranks
from rainbow_iqn_apex.agents.q_learning.agent import QLearningAgent
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.chunk import Chunk
from rainbow_iqn_apex.memory.environment_spec import Box, EnvironmentSpec, Field
from rainbow_iqn_apex.memory.rows import StepType
from rainbow_iqn_apex.programs.agent import make_agent
from tests.agents.ranks import ForgetfulRank, ThreadRank, together
from tests.agents.sequences import CPU, ENVIRONMENT, play, replay_with
from tests.agents.test_sequences import in_order

pytestmark = pytest.mark.usefixtures("one_thread")

TOLERANCE = 2e-4  # float32, as a share of the largest number of a tensor
BOX = EnvironmentSpec(Field((5,), "uint8"), Box(2))
VECTOR = EnvironmentSpec(Field((5,), "float32"), ENVIRONMENT.action)
SEQUENCES = "--unroll-length 7 --hidden-size 9"
ROUNDS = "--unroll-length 7 --mlp-size 9 --minibatches 1 --epochs 2 --lr-on-policy 1e-6"
LSTM = "--hidden-size 9 --lstm-size 6 --minibatch-split sequences"
PIECES = "--burn-in 4 --hidden-size 9 --lstm-size 6"
TARGETS = "--sequence-length 8 --sequence-period 4 --multi-step 3 --target-period 3"
SUMS = "--lstm-size 6 --loss-reduction sum --max-gradient-norm 0"
CLEAR = (
    "--replay-mix queue:0.5,uniform:0.5:60 --policy-cloning-cost 0.2 --value-cloning-cost 0.3 --trust-threshold 0.5 "
    "--impact-target-period 2"
)
LIMITS = (
    "--target-entropy 0.8 --kl-limit 0.01 --reverse-kl-limit 0.02 --reference-kl-limit 0.03 --reference-period 2 "
    "--max-gradient-norm 0.1"
)
# By what is special of each: agent and options, environment, and whether anything is computed over a whole batch.
CASES: dict[str, tuple[str, EnvironmentSpec, bool]] = {
    "Rainbow-IQN": ("rainbow_iqn --hidden-size 9 --num-tau-samples 7 --max-gradient-norm 0.01", ENVIRONMENT, False),
    "Rainbow": ("rainbow --hidden-size 9 --atoms 11", ENVIRONMENT, False),
    "BTR": ("btr --hidden-size 9 --layer-norm True --max-gradient-norm 0.01", ENVIRONMENT, False),
    "R2D2": (f"r2d2 {PIECES} {TARGETS}", ENVIRONMENT, False),
    "IMPALA": (f"impala {SEQUENCES}", ENVIRONMENT, True),
    "IMPALA whose losses are sums": (f"impala {SEQUENCES} {SUMS}", ENVIRONMENT, True),
    "IMPALA with a learned entropy": (f"impala {SEQUENCES} --target-entropy 0.9", ENVIRONMENT, True),
    "IMPALA that replays": (f"impala {SEQUENCES} {CLEAR}", ENVIRONMENT, True),
    "REINFORCE": ("reinforce --unroll-length 7 --history-length 1", VECTOR, True),
    "PQN": ("pqn --unroll-length 7 --hidden-size 9 --minibatches 1 --lr-PQN 1e-6", ENVIRONMENT, True),
    "SAC": ("sac --hidden-size 9 --multi-step 2", ENVIRONMENT, True),
    "SAC, numbers": ("sac --hidden-size 9 --max-gradient-norm 0.1", BOX, True),
    "SAC, sequences": (f"sac {PIECES} --sequence-length 7 --sequence-period 5 --multi-step 2", ENVIRONMENT, True),
    "PPO": (f"ppo {ROUNDS} --normalise-observations True --normalise-rewards True", VECTOR, True),
    "PPO, numbers": (f"ppo {ROUNDS} --normalise-observations True --value-clip 0.1", BOX, True),
    "PPO, huber": (f"ppo {ROUNDS} --advantage vtrace --fresh-advantages True --value-loss huber", BOX, True),
    "PPO with PopArt and all limits": (f"ppo {ROUNDS} --popart True {LIMITS}", VECTOR, True),
    "V-MPO": (f"vmpo {ROUNDS} --popart True --fresh-advantages True", VECTOR, True),
    "V-MPO with an LSTM": (f"vmpo {ROUNDS} {LSTM}", ENVIRONMENT, True),
    "AWR": (f"awr {ROUNDS} --kept-advantages positive", VECTOR, True),
    "VPG": (f"vpg {ROUNDS} --advantage n-step --kept-advantages better-half", VECTOR, True),
    "V-trace": (f"vtrace {ROUNDS}", VECTOR, True),
}
SPLITS = {2: [7, 5], 3: [5, 4, 3]}  # columns of each learner; a loss that counts no rows needs equal ones


class Given:
    """Noise that is the same for a sample, whichever learner has it."""

    def __init__(self, columns: slice, total: int) -> None:
        self._columns, self._total, self._calls = columns, total, 0

    def draw(self, draw: Callable[..., Tensor], *shape: int, axis: int) -> Tensor:
        """Draw the next numbers of this shape, whose samples lie along the axis."""
        generator = torch.Generator().manual_seed(self._calls)
        self._calls += 1
        whole = [*shape]
        whole[axis] = self._total
        return draw(*whole, generator=generator).movedim(axis, 0)[self._columns].movedim(0, axis)


_making = threading.Lock()
_present = threading.local()  # given: the noise of this thread


def given_noise(self: Normal, _: torch.Generator) -> Tensor:
    """Stand for `rsample`."""
    noise: Tensor = _present.given.draw(torch.randn, *self._mean.shape, axis=-2)
    return self._mean + self._log_std.exp() * noise


def agent_of(words: str, environment: EnvironmentSpec, ranks: Ranks = ALONE, seed: int = 3) -> Any:
    agent, *more = words.split()
    common = "--history-length 3 --learn-start 60 --memory-capacity 4000 --precision float32".split()
    args = options.parse(["--agent", agent, *common, *more], "test", "")
    return make_agent(args, environment, CPU, learns=True, seed=seed, ranks=ranks)


def chunks_of(agent: Any, environment: EnvironmentSpec, count: int) -> list[Chunk]:
    """Play short episodes, some of which end in a window's first row."""
    steps = count * agent.spec.period + agent.spec.window
    return play(agent, steps, seed=1, longest=5, dtype=environment.observation.dtype).chunks[:count]


def batch_of(agent: Any, environment: EnvironmentSpec, size: int) -> Batch:
    """Return a batch with LAST rows in some columns, replayed ones, and importance weights."""
    if agent.spec.samples > 1:
        drawn = replay_with(agent, environment, chunks_of(agent, environment, 5)).sample(size, 0.0)
        batch = Batch({name: drawn.rows[name].clone() for name in drawn.rows}, {})
        batch.rows["step_type"][agent.spec.prefix, : size // 3] = StepType.LAST
    else:
        batch = in_order(chunks_of(agent, environment, size + 2)[2:])  # before these nobody acted
    weights = torch.rand(size, generator=torch.Generator().manual_seed(2)) if agent.spec.prioritised else None
    replayed = torch.arange(size) % 3 == 0 if agent.buffer == "mixture" else None
    return batch._replace(weights=weights, replayed=replayed)


def part_of(batch: Batch, columns: slice) -> Batch:
    rows = {name: rows[:, columns] for name, rows in batch.rows.items()}
    state = {name: part[columns] for name, part in batch.state.items()}
    weights, replayed = (None if part is None else part[columns] for part in (batch.weights, batch.replayed))
    return Batch(rows, state, weights, replayed=replayed)


def updated(agent: Any, batch: Batch, columns: slice) -> Update:
    """Make two updates, the second one with what the first has left; return the second's."""
    total = batch.reward.shape[1]
    _present.given = given = Given(columns, total)
    if isinstance(agent, QLearningAgent):
        agent.sample_taus = lambda *shape: given.draw(torch.rand, *shape, axis=1)  # type: ignore[method-assign]
    for step in (1, 2):
        update: Update = agent.update(part_of(batch, columns), 0.5)
        agent.count_update(step)
    return update


def learned(agent: Any) -> dict[str, Tensor]:
    """Return the gradients of all weights, and all that is counted."""
    found: dict[str, Tensor] = {}
    for name, part in agent.parts.items():
        if isinstance(part, nn.Module):
            weights = [(key, weight.grad) for key, weight in part.named_parameters() if weight.grad is not None]
            found |= {f"gradient of {name}.{key}": gradient for key, gradient in weights}
            found |= {f"{name}.{key}": buffer for key, buffer in part.named_buffers() if "epsilon" not in key}
    if "statistics" in agent.parts:
        for name, numbers in agent.parts["statistics"].state_dict().items():
            found |= {f"{name}.{key}": number for key, number in numbers.items()}
    return found


def difference(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """Return the largest difference as a share of the largest number beside it."""
    assert found.keys() == wanted.keys() != set()
    shares = [
        float((found[key].double() - number.double()).abs().max() / number.double().abs().max().clamp(min=1e-6))
        for key, number in wanted.items()
    ]
    return max(shares)


def shared(words: str, environment: EnvironmentSpec, batch: Batch, sizes: list[int], *, forgets: bool) -> list[Any]:
    """Let learners with so many columns each make the updates; return agent and update of each."""
    starts = [sum(sizes[:rank]) for rank in range(len(sizes))]
    columns = [slice(start, start + size) for start, size in zip(starts, sizes, strict=True)]

    def learn(rank: ThreadRank) -> tuple[Any, Update]:
        with _making:  # the first weights are drawn with PyTorch's own generator
            agent = agent_of(words, environment, ForgetfulRank(rank) if forgets else rank)
        return agent, updated(agent, batch, columns[rank.rank])

    return together(len(sizes), learn)


@pytest.mark.parametrize("learners", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
def test_an_update_is_that_of_one_learner_with_all_batches(
    name: str, learners: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, environment, counts = CASES[name]
    sizes = SPLITS[learners] if counts else [12 // learners] * learners
    monkeypatch.setattr(Normal, "rsample", given_noise)
    one = agent_of(words, environment)
    batch = batch_of(agent_of(words, environment), environment, sum(sizes))
    update = updated(one, batch, slice(None))
    found = shared(words, environment, batch, sizes, forgets=False)
    for agent, _ in found:
        assert difference(learned(agent), learned(one)) < TOLERANCE
        for key, weight in found[0][0].model.state_dict().items():
            assert torch.equal(weight, agent.model.state_dict()[key]), "all learners have the same weights"
    plain = {"value"} if name == "REINFORCE" else set()  # a mean that leaves no row out
    for key, metric in [item for item in update.metrics.items() if item[0] not in plain]:
        mean = torch.stack([own.metrics[key].float() for _, own in found]).mean()
        torch.testing.assert_close(mean, metric.float(), rtol=1e-3, atol=1e-5, msg=key)
    if update.priorities is not None:
        priorities = torch.cat([own.priorities for _, own in found])
        torch.testing.assert_close(priorities, update.priorities, rtol=1e-3, atol=1e-5)
    # Mutation: only gradients are averaged, and each learner counts the rows of its own batch.
    wrong = shared(words, environment, batch, sizes, forgets=True)[0][0]
    assert (difference(learned(wrong), learned(one)) > 10 * TOLERANCE) == counts


def test_rounds_of_different_sizes_make_the_same_number_of_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a learner has fewer rows than updates, all learners make as many as it can."""
    monkeypatch.setattr(Normal, "rsample", given_noise)
    words = CASES["PPO"][0].replace("--minibatches 1", "--minibatches 12")
    batch = batch_of(agent_of(words, VECTOR), VECTOR, 7)
    found = shared(words, VECTOR, batch, [6, 1], forgets=False)
    torch.testing.assert_close(*(agent.model.state_dict() for agent, _ in found), rtol=0, atol=0)

"""A recorded update is checked against its operations, on a CPU with stand-ins for the CUDA graph."""

import itertools
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex.agents.interface import Agent, Update
from rainbow_iqn_apex.common.loop_clock import LoopClock
from rainbow_iqn_apex.memory.chunk import Chunk
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.programs.learner.trainers import PARTS, GraphRecorder, GraphTrainer, Metrics, Turn, Work
from tests.agents import sequences, test_agents
from tests.memory.valid import check_valid

pytestmark = pytest.mark.usefixtures("one_thread", "memory_of_a_gpu")
CPU = torch.device("cpu")
AGENTS = (*test_agents.RAINBOWS, "r2d2", "sac-lstm")
every_agent = pytest.mark.parametrize("name", AGENTS)
TURNS = [Turn(number / 10, 4 * number) for number in range(1, 9)]


class Learning(NamedTuple):
    agent: Agent
    replay: Replay


def module_of(name: str) -> Any:
    return test_agents if name in test_agents.RAINBOWS else sequences


@cache
def chunks_of(name: str) -> list[Chunk]:
    return sequences.play(module_of(name).agent_of(name), 200).chunks


def learning(name: str) -> Learning:
    """Make an agent, whose network has a running statistic, too, and its replay, the same each time."""
    agent = module_of(name).agent_of(name)
    for network in (agent.network, getattr(agent, "target", None)):
        if network is not None:
            network.register_buffer("seen", torch.zeros((), dtype=torch.int64))
    agent.network.register_forward_hook(lambda network, *_: network.seen.add_(1) and None)
    return Learning(agent, sequences.replay_with(agent, module_of(name).ENVIRONMENT, chunks_of(name), 1000))


class Rerun(GraphRecorder):
    """Records by noting what to do again: what each launch of it does is `_again`'s to decide."""

    def __init__(self) -> None:
        self.warmed_up = self.launched = 0

    def warm_up(self, work: Work) -> Update:
        self.warmed_up += 1
        return work()

    def record(self, work: Work) -> Work:
        def launch() -> Update:
            self.launched += 1
            return self.again(work)

        return launch

    def again(self, work: Work) -> Update:
        return work()


class Unrecordable(Rerun):
    """Fails as PyTorch does: at the operation, and once more at the recording's end."""

    def record(self, work: Work) -> Work:
        try:
            work()
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nCompile with ...")
        finally:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")


class Wrong(Rerun):
    """Does something else than what was recorded."""

    def __init__(self, again: Callable[["Learning", Work, Update], Update], both: Learning) -> None:
        super().__init__()
        self._again, self._both, self._made = again, both, Update(None, {})

    def warm_up(self, work: Work) -> Update:
        self._made = super().warm_up(work)
        return self._made

    def again(self, work: Work) -> Update:
        return self._again(self._both, work, self._made)


def trainer_of(both: Learning, recorder: GraphRecorder) -> GraphTrainer:
    return GraphTrainer(both.agent, both.replay, 10, CPU, LoopClock(*PARTS), recorder)


def state_of(both: Learning) -> list[Tensor]:
    """All that updates change, and where the generators are."""
    agent, replay = both
    modules = [part for part in agent.parts.values() if isinstance(part, torch.nn.Module)]
    weights = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
    moments = [moment for state in agent.parts["optimiser"].state_dict()["state"].values() for moment in state.values()]
    return [*weights, *moments, replay.checkpoint().priorities, agent.generator.get_state(),
            replay.generator.get_state()]  # fmt: skip


@cache
def plainly_learned(name: str) -> tuple[list[Metrics], list[Tensor]]:
    """Make the updates with no check; return their metrics, and all that they have changed."""
    both, found = learning(name), []
    for turn in TURNS:
        progress = torch.tensor(turn.progress)
        batch = both.replay.sample(10, progress)
        update = both.agent.update(batch, progress)
        both.replay.learned(batch, update.priorities)
        both.agent.count_update(turn.step)
        found.append(update.metrics)
    return found, state_of(both)


def assert_same(both: Learning, metrics: list[Metrics], name: str) -> None:
    wanted, state = plainly_learned(name)
    for found, made in zip(metrics, wanted, strict=True):
        assert found.keys() == made.keys()
        assert all(torch.equal(found[key], made[key]) for key in made)
    assert all(torch.equal(a, b) for a, b in zip(state_of(both), state, strict=True))
    check_valid(both.replay)


@every_agent
def test_the_check_changes_nothing_that_is_learned(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    # Mutation: leave the generators, the others or the priorities out of `LearnedState.restore`.
    both, recorder = learning(name), Rerun()
    metrics = trainer_of(both, recorder)(TURNS)
    assert_same(both, metrics, name)
    assert (recorder.warmed_up, recorder.launched) == (4, 5)
    assert capsys.readouterr().out == ""


@every_agent
def test_where_recording_fails_the_operations_go_on(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    both = learning(name)
    metrics = trainer_of(both, Unrecordable())(TURNS)
    assert_same(both, metrics, name)
    assert capsys.readouterr().out == (
        "The update as one CUDA graph fails: CUDA error: operation not permitted when stream is capturing; "
        "from now on its operations are launched one by one\n"
    )


def _none(_both: Learning, _work: Work, made: Update) -> Update:
    return made


def _twice(_both: Learning, work: Work, _made: Update) -> Update:
    work()
    return work()


def _other_batch(both: Learning, work: Work, _made: Update) -> Update:
    torch.rand(1, generator=both.replay.generator)
    return work()


def _other_priorities(_both: Learning, work: Work, _made: Update) -> Update:
    made = work()
    return made if made.priorities is None else made._replace(priorities=made.priorities * 1.05)


def _changed(made: Update, factor: float) -> Update:
    return made._replace(metrics={name: result * factor for name, result in made.metrics.items()})


def _other_numbers(_both: Learning, work: Work, _made: Update) -> Update:
    return _changed(work(), 1.05)


def _no_numbers(_both: Learning, work: Work, _made: Update) -> Update:
    return _changed(work(), torch.nan)


def _no_priorities(both: Learning, work: Work, _made: Update) -> Update:
    kept = [tensor.clone() for tensor in both.replay.recorded()]
    results = work()
    for tensor, before in zip(both.replay.recorded(), kept, strict=True):
        tensor.copy_(before)
    return results


@pytest.mark.parametrize(
    ("name", "again"),
    [
        *itertools.product(
            ["rainbow_iqn", "r2d2", "sac-lstm"], [_none, _twice, _other_batch, _other_numbers, _no_numbers]
        ),
        *itertools.product(["rainbow_iqn", "r2d2"], [_other_priorities, _no_priorities]),  # SAC's replay is uniform
    ],
)
def test_a_recording_that_differs_is_not_used(name: str, again: Any, capsys: pytest.CaptureFixture[str]) -> None:
    # Mutations: return the launch whatever `differing` has; compare the metrics alone.
    both = learning(name)
    recorder = Wrong(again, both)
    metrics = trainer_of(both, recorder)(TURNS)
    assert_same(both, metrics, name)
    assert recorder.launched == 1
    line = capsys.readouterr().out
    assert line.startswith("The update as one CUDA graph differs from its operations in ") and line.count("\n") == 1
    assert ("priorities of replay" in line) or again is not _no_priorities
    assert ("priorities of the batch" in line) or again is not _other_priorities


def _round(gradient: Tensor) -> Tensor:
    return gradient.bfloat16().float()


@every_agent
def test_rounding_is_no_difference(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Gradients have bfloat16's rounding errors: more than a sum in another order makes."""
    both = learning(name)
    modules = [part for part in both.agent.parts.values() if isinstance(part, torch.nn.Module)]
    parameters = [tensor for module in modules for tensor in module.parameters() if tensor.requires_grad]

    def rounded(_both: Learning, work: Work, _made: Update) -> Update:
        hooks = [tensor.register_hook(_round) for tensor in parameters]  # type: ignore[no-untyped-call]
        results = work()
        for hook in hooks:
            hook.remove()
        return results

    trainer_of(both, Wrong(rounded, both))(TURNS)
    assert capsys.readouterr().out == ""

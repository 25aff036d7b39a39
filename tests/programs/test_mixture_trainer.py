"""Batches prepared in a thread are the ones of no thread, and those that do not fit into memory become smaller."""

import os
import re
import threading
import time
from functools import cache
from typing import Any

import pytest
import torch

from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId
from rainbow_iqn_apex.memory.mixture.buffer import Mixture
from rainbow_iqn_apex.memory.mixture.spec import Sampling, shrunk
from rainbow_iqn_apex.monitoring.metrics import MOST_TAGS, Tags
from rainbow_iqn_apex.programs.learner.gauges import summary
from rainbow_iqn_apex.programs.learner.trainers import MixtureTrainer, Turn, lag, make_trainer
from tests.agents.sequences import CPU, ENVIRONMENT, agent_of, play
from tests.memory.valid import check_valid
from tests.processes import Ended, run

pytestmark = pytest.mark.usefixtures("one_thread")
AHEAD = 3


@cache
def chunks() -> list[Chunk]:
    return play(agent_of("impala-mix", seed=8), 300).chunks


def parts(kind: type[Mixture] = Mixture, size: int = 4) -> tuple[Any, Mixture]:
    """An agent whose tables need features and priorities, and a mixture that holds what another has played."""
    agent = agent_of("impala-mix", *"--candidates-annealed-over 90 --lr-IMPALA 0.05 --max-gradient-norm 0".split())
    own = agent._options
    generator = torch.Generator().manual_seed(5)
    buffer = kind(agent.spec, ENVIRONMENT, own.mix, size, generator, CPU, queue_capacity=400, settings=own.sampling)
    buffer.features.measure = agent.measure
    for number, chunk in enumerate(chunks()):
        buffer.add(ChunkId(0, number), chunk)
    return agent, buffer


def turns(buffer: Mixture) -> list[Turn]:
    return [Turn(0.1 * i, i + 1) for i, _ in enumerate(buffer.next_steps(AHEAD))]


def trained(trainer: Any, agent: Any, buffer: Mixture) -> dict[str, torch.Tensor]:
    while made := turns(buffer):
        assert len(trainer(made)) == len(made)
        check_valid(buffer)
    return dict(agent.network.state_dict())


@cache
def plainly_trained() -> dict[str, torch.Tensor]:
    """All batches of a call, then all updates, then all priorities: without a thread, and without a copy."""
    agent, buffer = parts()

    def train(made: list[Turn]) -> list[Turn]:
        batches = [buffer.sample(None, turn.progress) for turn in made]
        updates = []
        for turn, batch in zip(made, batches, strict=True):
            updates.append(agent.update(batch, turn.progress))
            agent.count_update(turn.step)
        for batch, update in zip(batches, updates, strict=True):
            buffer.learned(batch, update.priorities)
        return made

    return trained(train, agent, buffer)


class Slow(Mixture):
    """Takes its time, so that updates run meanwhile: one that has begun also ends, however busy the machine is."""

    rests = threading.Event()  # set while no update is under way
    rests.set()

    def sample(self, batch_size: int | None, progress: float | torch.Tensor = 0.0) -> Batch:
        if threading.current_thread() is not threading.main_thread():
            time.sleep(0.02)
            self.rests.wait()
        return super().sample(batch_size, progress)


def noting(update: Any) -> Any:
    """Return a function that updates, and lets slow samplers wait meanwhile."""

    def noted(*args: Any) -> Any:
        Slow.rests.clear()
        try:
            return update(*args)
        finally:
            Slow.rests.set()

    return noted


class MeasuresLater(Slow):
    """A mutation: candidates are compared by the weights of the moment, not by those of the call's beginning."""

    def sample(self, batch_size: int | None, progress: float | torch.Tensor = 0.0) -> Batch:
        agent: Any = self.features.measure.__self__  # type: ignore[union-attr]
        agent.features._measuring = agent.features._core
        return super().sample(batch_size, progress)


def check_thread(kind: type[Mixture]) -> None:
    agent, buffer = parts(kind)
    agent.update = noting(agent.update)
    trainer = make_trainer(agent, buffer, 4, CPU)
    assert isinstance(trainer, MixtureTrainer)
    found = trained(trainer, agent, buffer)
    assert all(torch.equal(value, found[name]) for name, value in plainly_trained().items())


@pytest.mark.parametrize("kind", [Mixture, Slow])
def test_no_speed_of_a_thread_decides_anything(kind: type[Mixture]) -> None:
    check_thread(kind)


def test_the_check_notices_a_measurement_with_other_weights() -> None:
    with pytest.raises(AssertionError):
        check_thread(MeasuresLater)


def test_an_error_in_the_thread_is_raised() -> None:
    agent, buffer = parts()
    buffer.features.measure = lambda *_: torch.zeros(1)
    with pytest.raises(ValueError, match="features"):
        trained(make_trainer(agent, buffer, 4, CPU), agent, buffer)


def learn_with(megabytes: int) -> Ended:
    # Batches are mappings of their own from first to last. By itself, malloc takes them from what it reserved for a
    # thread once it has seen a few freed, and no limit counts that.
    always_mapped = os.environ | {"MALLOC_MMAP_THRESHOLD_": "131072"}
    return run("-m", "tests.agents.shortage", megabytes, environment=always_mapped)


@pytest.mark.slow
def test_batches_that_do_not_fit_into_memory_become_smaller_and_nothing_is_lost() -> None:
    # Mutations: no `put_back`; a `shrink` that breaks the shares; sequences taken before their rows are gathered.
    code, out, errors = learn_with(80)
    assert code == 0, errors
    sizes = [tuple(map(int, found)) for found in re.findall(r"^batch of (\d+), fresh (\d+)$", out, re.M)]
    told = r"^Out of memory: batches have (\d+) sequences from now on, in the place of (\d+)$"
    steps = [tuple(map(int, found)) for found in re.findall(told, out, re.M)]
    assert steps and all(now == before - 2 for now, before in steps), "the smallest step that keeps the halves"
    assert all(size == 2 * fresh for size, fresh in sizes) and sizes[-1][0] == steps[-1][0] < sizes[0][0]
    (numbers,) = re.findall(r"^learned (.*)$", out, re.M)
    learned = list(map(int, numbers.split()))
    assert learned == list(range(len(learned))) and len(learned) > 48 - sizes[-1][1], "each once, the oldest first"


@pytest.mark.slow
def test_a_batch_that_cannot_become_smaller_ends_the_run() -> None:
    code, out, errors = learn_with(5)
    assert code and "can't allocate memory" in errors and "batches have 2 sequences" in out


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("std::bad_alloc"),  # with 25 MB left for `tests.agents.shortage`
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA error: out of memory"),
    ],
)
def test_every_shortage_of_memory_makes_batches_smaller(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, buffer = parts(size=8)
    update, errors = agent.update, [error]

    def fail_once(*given: Any) -> Any:
        if errors:
            raise errors.pop()
        return update(*given)

    monkeypatch.setattr(agent, "update", fail_once)
    trainer = make_trainer(agent, buffer, 8, CPU)
    before, made = buffer.batch_size, turns(buffer)
    assert trainer(made) == [] and buffer.batch_size == shrunk(agent._options.mix, before)
    assert len(trainer(turns(buffer)[:1])) == 1


def test_metrics_of_a_batch_that_lies_elsewhere_are_on_the_agents_device() -> None:
    # Mutation: the lag where the versions are. All metrics are checked together, and one of another device is an error.
    elsewhere = torch.device("meta")
    found = lag(Turn(0.1, 1, version=5), Batch({}, {}, versions=torch.tensor([3, 4])), elsewhere)
    assert found.keys() == {"policy_lag", "largest_policy_lag"}
    assert all(metric.device == elsewhere for metric in found.values())


def test_the_largest_lag_of_several_updates_is_no_mean() -> None:
    made = [{"policy_lag": torch.tensor(own), "largest_policy_lag": torch.tensor(own)} for own in (9.0, 1.0, 2.0)]
    assert summary(made, Tags()) == {"train/policy_lag": 4, "train/largest_policy_lag": 9}
    tags = Tags()
    assert summary([], tags) == {}
    found = summary([{f"m{i}": torch.tensor(1.0) for i in range(MOST_TAGS)}], tags)
    assert len(found) == MOST_TAGS, "what no update has takes no place"


def test_other_errors_do_not_make_batches_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, buffer = parts()

    def fail(*_: Any) -> None:
        raise RuntimeError("another")

    monkeypatch.setattr(agent, "count_update", fail)
    with pytest.raises(RuntimeError, match="another"):
        make_trainer(agent, buffer, 4, CPU)(turns(buffer))
    assert buffer.batch_size == 4


def test_settings_of_sampling_are_those_of_the_options() -> None:
    own = agent_of("impala", *"--replay-mix queue:0.5,elite:0.5:9 --elite-strategy 4 --candidates 3.5".split())._options
    assert own.sampling == Sampling(strategy=4, candidates=3.5, annealed_over=100_000)

"""A mixture gives each sequence once as fresh, and the others of its tables as they promise, whatever happens when."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId, ChunkSpec
from rainbow_iqn_apex.memory.mixture.buffer import Mixture
from rainbow_iqn_apex.memory.mixture.spec import Sampling, counts, parse_mix
from rainbow_iqn_apex.memory.mixture.tables import Table
from rainbow_iqn_apex.memory.rows import StepType
from tests.memory.mixture.sequences import (
    BATCHES,
    CPU,
    ENVIRONMENT,
    MIXES,
    QUEUE_ROWS,
    SPEC,
    Sent,
    Stream,
    make_mixture,
    make_sent,
)  # fmt: skip
from tests.memory.valid import check_valid

pytestmark = pytest.mark.usefixtures("one_thread")
SETTINGS = [Sampling(annealed_over=15, strategy=strategy, elite_insertion=strategy > 2) for strategy in (1, 2, 3, 4)]


class Model:
    """A mixture as lists of sequences, and every check of the real one against them."""

    def __init__(self, mix: str, settings: Sampling) -> None:
        self.mix = tuple(sorted(parse_mix(mix), key=lambda part: part.table != "queue"))
        self.chooses = settings.elite_insertion
        self.learnable: list[Sent] = []
        self.waiting: list[Sent] = []
        self.updates = 0

    def add(self, sent: Sent) -> None:
        if sent.learnable:
            self.learnable.append(sent)
            self.waiting.append(sent)

    def check_batch(self, batch: Batch, size: int) -> list[Sent]:
        """Check a batch, and return its fresh sequences."""
        assert batch.generations is not None and batch.replayed is not None and batch.versions is not None
        numbers, places = batch.generations.tolist(), counts(self.mix, size)
        assert len(numbers) == size and batch.replayed.tolist() == [b >= places[0] for b in range(size)]
        found = [self.learnable[number] for number in numbers]
        fresh = self.waiting[: places[0]]
        assert [sent.id for sent in found[: places[0]]] == [sent.id for sent in fresh]
        assert batch.versions.tolist() == [sent.chunk.version for sent in fresh]
        for b, sent in enumerate(found):
            for name, array in sent.chunk.rows.items():
                assert batch.rows[name][:, b].numpy().tobytes() == array.tobytes(), name
            assert batch.state["memory"][b].numpy().tobytes() == sent.chunk.state["memory"].tobytes()
        first = places[0]
        for part, n in zip(self.mix[1:], places[1:], strict=True):
            self._check_part(part.table, part.capacity or 0, numbers[first : first + n])
            first += n
        self.waiting = self.waiting[places[0] :]
        return fresh

    def _check_part(self, table: str, capacity: int, numbers: list[int]) -> None:
        longest = capacity * (4 if table == "elite" and self.chooses else 1)
        assert all(number >= len(self.learnable) - longest for number in numbers)
        held, often = min(capacity, len(self.learnable)), Counter(numbers)
        if table != "prioritised":
            assert max(often.values()) <= -(-len(numbers) // held), "a duplicate, although there are enough"

    def check(self, mixture: Mixture) -> None:
        check_valid(mixture)
        assert mixture.room == 12 - len(self.waiting)
        fresh = self.waiting[: counts(self.mix, mixture.batch_size)[0]]
        assert mixture.ready() == (len(fresh) == counts(self.mix, mixture.batch_size)[0])
        steps = [sent.chunk.rows["step_type"][SPEC.prefix : SPEC.prefix + SPEC.length] for sent in fresh]
        total = sum(int((kinds != StepType.LAST).sum()) for kinds in steps)
        assert mixture.next_steps() == ([total] if mixture.ready() else [])


def check_random_operations(mix: str, seed: int, kind: type[Mixture] = Mixture) -> None:
    rng, stream, settings = np.random.default_rng(seed), Stream(seed), SETTINGS[seed % 4]
    mixture, model = make_mixture(MIXES[mix], BATCHES[mix], kind, settings), Model(MIXES[mix], settings)
    taken: list[tuple[Batch, list[Sent]]] = []
    for _ in range(90):
        event = rng.choice(["add", "sample", "learned", "put back", "shrink"], p=[0.5, 0.2, 0.2, 0.09, 0.01])
        if event == "add" and mixture.room and not taken:
            sent = stream.next()
            mixture.add(*sent)
            model.add(sent)
        elif event == "sample" and mixture.ready():
            batch = mixture.sample(None, 0.5)
            taken.append((batch, model.check_batch(batch, mixture.batch_size)))
            continue  # what is given is neither waiting nor room
        elif event == "learned" and taken:
            priorities = torch.from_numpy(rng.uniform(0, 9, taken[0][0].reward.shape[1]))
            mixture.learned(taken.pop(0)[0], priorities if rng.integers(2) else None)
        elif event == "put back" and taken:
            mixture.put_back([batch for batch, _ in taken])
            model.waiting[:0] = [sent for _, fresh in taken for sent in fresh]
            taken = []
        elif event == "shrink":
            mixture.shrink()
        if not taken:
            model.check(mixture)
        check_valid(mixture)


@pytest.mark.parametrize("mix", MIXES)
def test_random_operations(mix: str) -> None:
    for seed in range(4):
        check_random_operations(mix, seed)


class NewestFirst(Mixture):
    def add(self, chunk_id: ChunkId, chunk: Chunk) -> None:
        super().add(chunk_id, chunk)
        self._queue.waiting.rotate(1)


class PutsBackInAnotherOrder(Mixture):
    def put_back(self, batches: Sequence[Batch]) -> None:
        super().put_back(batches[::-1])


class LosesWhatFailed(Mixture):
    def put_back(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            self.learned(batch, None)


class NeverSettles(Mixture):
    def learned(self, batch: Batch, priorities: Tensor | None) -> None:
        pass


class ForgetsReferences(Mixture):
    def learned(self, batch: Batch, priorities: Tensor | None) -> None:
        super().learned(batch, priorities)
        self._pool.release(next(iter(self._tables[0].references())))


class Repeats(Mixture):
    def _draw(self, table: Table, n: int, fresh: Tensor) -> Tensor:
        return super()._draw(table, 1, fresh).repeat(n)


class DrawsTheFreshAlone(Mixture):
    def sample(self, batch_size: int | None, progress: float | Tensor = 0.0) -> Batch:
        batch = super().sample(batch_size, progress)
        return batch._replace(replayed=torch.zeros(batch.reward.shape[1], dtype=torch.bool))


class MixesRows(Mixture):
    def sample(self, batch_size: int | None, progress: float | Tensor = 0.0) -> Batch:
        batch = super().sample(batch_size, progress)
        return batch._replace(state={name: state.roll(1, 0) for name, state in batch.state.items()})


class LearnsTheUnlearnable(Mixture):
    def add(self, chunk_id: ChunkId, chunk: Chunk) -> None:
        step_type = np.minimum(chunk.rows["step_type"], StepType.MID)
        super().add(chunk_id, replace(chunk, rows=chunk.rows | {"step_type": step_type}))


BROKEN = [
    NewestFirst, PutsBackInAnotherOrder, LosesWhatFailed, NeverSettles, ForgetsReferences, Repeats, DrawsTheFreshAlone,
    MixesRows, LearnsTheUnlearnable,
]  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN)
def test_the_random_operations_notice(broken: type[Mixture]) -> None:
    with pytest.raises((AssertionError, ValueError)):
        for seed in range(12):
            check_random_operations("clear", seed, broken)


def test_a_full_queue_drops_its_oldest_and_tables_keep_it() -> None:
    mixture, stream = make_mixture("queue:1/2,uniform:1/2:40", 4), Stream(2)
    for _ in range(30):
        mixture.add(*stream.next())
    learnable = [sent for sent in stream.sent if sent.learnable]
    assert mixture.room == 0
    batch = mixture.sample(None)
    assert batch.generations is not None and batch.generations[:2].tolist() == [
        len(learnable) - 12,
        len(learnable) - 11,
    ]
    assert mixture.chunks == len(learnable), "still in the other table"
    assert mixture.oldest() == {
        actor: min(sent.id.sequence for sent in learnable if sent.id.actor == actor) for actor in (0, 1)
    }
    check_valid(mixture)
    for _ in range(12):  # what was given makes room first
        mixture.add(*make_sent(np.random.default_rng(1), 0, 1000 + _))
    check_valid(mixture)
    waiting = list(mixture._queue.waiting)
    mixture.put_back([batch])
    assert list(mixture._queue.waiting) == waiting, "given up meanwhile"
    mixture.learned(batch, None)
    check_valid(mixture)


def test_batches_shrink_with_whole_shares() -> None:
    mixture, stream = make_mixture(MIXES["clear"], 9), Stream(3)
    assert not mixture.ready() and mixture.sampled_age() is None
    while not mixture.ready():
        mixture.add(*stream.next())
    batch = mixture.sample(9)
    assert mixture.shrink() == 6
    mixture.put_back([batch])
    assert mixture.ready()
    smaller = mixture.sample(None)
    assert smaller.versions is not None and batch.versions is not None
    assert smaller.versions.tolist() == batch.versions[:2].tolist()
    assert mixture.shrink() == 3 and mixture.shrink() is None and mixture.batch_size == 3
    assert smaller.obs.shape == (SPEC.window, 6, 2, 3) and smaller.to(CPU) is smaller
    moved = smaller.to(torch.device("meta"))
    assert moved.replayed is not None and moved.replayed.device.type == "meta"
    age = mixture.sampled_age()
    assert age is not None and 0 <= age < 9


def test_what_a_mixture_cannot_do() -> None:
    def make(spec: ChunkSpec = SPEC) -> Mixture:
        mix, draw = parse_mix("queue:1/2,elite:1/2:9"), torch.Generator()
        return Mixture(spec, ENVIRONMENT, mix, 4, draw, CPU, queue_capacity=QUEUE_ROWS, settings=Sampling())

    with pytest.raises(ValueError, match="a mixture gives whole chunks, and these have 5 samples"):
        make(replace(SPEC, sample_length=1, state=()))
    with pytest.raises(ValueError, match="an elite table compares features, and the chunks have none"):
        make(replace(SPEC, extras=()))
    mixture, stream = make(), Stream(4)
    for _ in range(9):
        mixture.add(*stream.next())
    with pytest.raises(ValueError, match="a batch takes 50 sequences of the queue, and"):
        make_mixture("queue:1", 4).sample(50)
    with pytest.raises(RuntimeError, match="has no measure of features"):
        mixture.sample(None)
    mixture.features.measure = lambda rows, _: rows["extras.features"]
    with pytest.raises(ValueError, match=r"features \(10, \d, 4\) must be \[8, \d, F\]"):
        mixture.sample(None)


def test_the_size_of_a_queue_without_room_for_its_share() -> None:
    mixture = make_mixture("queue:3/4,uniform:1/4:9", 32)
    assert mixture.slots == 24, "an update must not wait for what never comes"

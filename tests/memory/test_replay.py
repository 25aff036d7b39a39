from typing import NamedTuple

import numpy as np
import pytest
import torch
from msgspec import structs
from torch import Tensor

from rainbow_iqn_apex.memory.assembler import Assembler
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.buffer import Checkpoint
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId, ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import Field
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.memory.rows import Array, Arrays, StepType
from tests.conftest import Moment, random_rows, window_of
from tests.memory.valid import check_valid
from tests.specs import discrete

OUT = (("q", Field((2,), "float32")),)
STATE = (("memory", Field((5,), "float32")),)
SPECS = {
    "rainbow": ChunkSpec(4, 0, 8, 3, 8, 1),
    "r2d2": ChunkSpec(2, 3, 6, 2, 3, 6, state=STATE),
    "on-policy": ChunkSpec(4, 0, 5, 1, 5, 5, extras=OUT),
    "sac": ChunkSpec(1, 0, 9, 1, 9, 1),
    "pairs, overlapping": ChunkSpec(3, 1, 6, 2, 2, 2, OUT),
}
CPU = torch.device("cpu")
Stream = list[Moment]


def make_replay(spec: ChunkSpec, capacity: int, seed: int = 0) -> Replay:
    return Replay(spec, discrete((2, 3), "uint8", 18), capacity, torch.Generator().manual_seed(seed), CPU)


class Sent(NamedTuple):
    """A chunk and where it comes from."""

    id: ChunkId
    chunk: Chunk
    stream: int
    start: int  # place of its first row in the stream


def make_chunks(spec: ChunkSpec, streams: list[Stream], rng: np.random.Generator) -> list[Sent]:
    """All chunks of three environments of two actors, in a random order that keeps each actor's."""

    def priorities(_: Arrays) -> Array:
        return rng.uniform(0.5, 9, spec.samples)

    assemblers = [Assembler(spec, env, priorities) for env in range(len(streams))]
    actors: list[list[Sent]] = [[], []]
    for t in range(len(streams[0])):
        for number, stream in enumerate(streams):
            if chunk := assemblers[number].add(*stream[t]):
                sent = actors[number % 2]
                before = sum(s.stream == number for s in sent)
                name = ChunkId(number % 2, 2 * len(sent) + 1)  # episodes have numbers in between
                sent.append(Sent(name, chunk, number, before * spec.period - spec.prefix))
    order = rng.permutation([0] * len(actors[0]) + [1] * len(actors[1]))
    return [actors[actor].pop(0) for actor in order]


class Model:
    """A replay as a list of chunks and a dictionary of priorities, and every check of the real one against it."""

    def __init__(self, spec: ChunkSpec, streams: list[Stream], capacity: int) -> None:
        self.spec = spec
        self.streams = streams
        self.slots = -(-capacity // spec.period)
        self.history: list[Sent] = []
        self.priorities: dict[tuple[ChunkId, int], float] = {}

    @property
    def held(self) -> list[Sent]:
        return self.history[-self.slots :]

    def add(self, sent: Sent) -> None:
        self.history.append(sent)
        assert sent.chunk.priorities is not None
        self.priorities |= {(sent.id, leaf): float(p) for leaf, p in enumerate(sent.chunk.priorities)}

    def leaves_of(self, batch: Batch) -> list[tuple[Sent, int]]:
        assert batch.generations is not None and batch.indices is not None
        generations, samples = batch.generations.tolist(), (batch.indices % self.spec.samples).tolist()
        return [(self.history[i], leaf) for i, leaf in zip(generations, samples, strict=True)]

    def current(self) -> dict[tuple[ChunkId, int], float]:
        held = {sent.id for sent in self.held}
        return {key: p for key, p in self.priorities.items() if key[0] in held}

    def check_batch(self, batch: Batch, beta: float) -> None:
        spec = self.spec
        probabilities = []
        total = sum(self.current().values())
        for b, (sent, leaf) in enumerate(self.leaves_of(batch)):
            assert sent in self.held
            full = window_of(self.streams[sent.stream], sent.start, spec)
            first = leaf * spec.sample_length
            window = {name: array[first : first + spec.sample_window] for name, array in full.items()}
            for name in ("obs", "step_type", "reward", "discount", "action"):
                assert_same(getattr(batch, name)[:, b], window[name])
            for name, _ in spec.extras:
                assert_same(batch.rows[f"extras.{name}"][:, b], window[f"extras.{name}"])
            for name, _ in spec.state:
                assert_same(batch.state[name][b], full[f"state.{name}"][spec.stack - 1])
            assert (window["step_type"][spec.prefix : spec.prefix + spec.sample_length] != StepType.LAST).any()
            probabilities.append(self.priorities[sent.id, leaf] / total)
        size = sum(p > 0 for p in self.current().values())
        weights = (size * np.array(probabilities)) ** -beta
        assert batch.weights is not None and batch.weights.dtype == torch.float32
        np.testing.assert_allclose(batch.weights, weights / weights.max(), rtol=1e-5)

    def check(self, replay: Replay) -> None:
        check_valid(replay)
        checkpoint = replay.checkpoint()
        ids, priorities = checkpoint.ids, checkpoint.priorities
        assert sorted(map(tuple, ids.tolist())) == sorted(sent.id for sent in self.held)
        for (actor, sequence), found in zip(ids.tolist(), priorities, strict=True):
            expected = [self.priorities[ChunkId(actor, sequence), leaf] for leaf in range(self.spec.samples)]
            np.testing.assert_allclose(found, expected, rtol=1e-6)
        oldest = {a: min(s.id.sequence for s in self.held if s.id.actor == a) for a in {s.id.actor for s in self.held}}
        assert replay.oldest() == oldest
        assert (replay.chunks, replay.steps) == (len(self.held), self.steps(self.held))

    def steps(self, held: list[Sent]) -> int:
        """Count rows that are not LAST, of those that only one chunk of a stream begins with."""
        return sum(
            row.step_type != StepType.LAST
            for sent in held
            for row, *_ in self.streams[sent.stream][max(0, sent.start + self.spec.prefix) :][: self.spec.period]
        )


def assert_same(found: Tensor, expected: Array) -> None:
    assert found.shape == expected.shape
    assert found.numpy().dtype == expected.dtype
    assert found.numpy().tobytes() == expected.tobytes()


def check_random_operations(spec: ChunkSpec, seed: int, kind: type[Replay] = Replay) -> None:
    rng = np.random.default_rng(seed)
    streams = [random_rows(rng, 120, number + 1) for number in range(3)]
    waiting = make_chunks(spec, streams, rng)
    capacity = int(rng.integers(3, 8)) * spec.period - int(rng.integers(spec.period))
    replay = kind(spec, discrete((2, 3), "uint8", 18), capacity, torch.Generator().manual_seed(seed), CPU)
    model = Model(spec, streams, capacity)
    batches: list[Batch] = []
    for _ in range(150):
        operation = rng.choice(["add", "sample", "update", "restart"], p=[0.35, 0.3, 0.33, 0.02])
        if operation == "add" and waiting:
            model.add(waiting.pop(0))
            replay.add(model.history[-1].id, model.history[-1].chunk)
        elif operation == "sample" and any(model.current().values()):
            beta = float(rng.uniform())
            batches.append(replay.sample(int(rng.integers(1, 12)), beta))
            model.check_batch(batches[-1], beta)
        elif operation == "update" and batches:
            batch = batches.pop(int(rng.integers(len(batches))))  # not always the newest: its slots may be overwritten
            assert batch.indices is not None
            priorities = rng.uniform(0.1, 9, len(batch.indices)).astype(np.float32)
            for (sent, leaf), p in zip(model.leaves_of(batch), priorities, strict=True):
                if sent in model.held:
                    model.priorities[sent.id, leaf] = float(p)
            replay.learned(batch, torch.from_numpy(priorities))
        elif operation == "restart" and model.history:
            replay, batches = restart(replay, model, kind, capacity, rng), []
        model.check(replay)


def restart(replay: Replay, model: Model, kind: type[Replay], capacity: int, rng: np.random.Generator) -> Replay:
    """What a resumed learner does: each actor's chunks come again in order, but the actors otherwise mixed."""
    checkpoint = replay.checkpoint()
    held = model.held
    by_actor = [[sent for sent in held if sent.id.actor == actor] for actor in range(2)]
    order = rng.permutation([actor for actor in range(2) for _ in by_actor[actor]])
    model.history[-len(held) :] = [by_actor[actor].pop(0) for actor in order]
    for part in (int(rng.integers(len(held))), len(held)):  # stopped before all have come, and resumed once more
        successor = kind(model.spec, discrete((2, 3), "uint8", 18), capacity, torch.Generator().manual_seed(1), CPU)
        successor.restore(checkpoint, dict.fromkeys(range(10), 10**6))
        check_valid(successor)
        for count, sent in enumerate(model.held[:part]):
            assert successor.steps == model.steps(model.held[:count])
            assert successor.remembers(sent.id)
            successor.add(sent.id, sent.chunk)
            assert not successor.remembers(sent.id)
        checkpoint = successor.checkpoint()
    return successor


@pytest.mark.parametrize("name", SPECS)
def test_random_operations(name: str) -> None:
    for seed in range(2):
        check_random_operations(SPECS[name], seed)


class UpdatesOverwritten(Replay):
    def learned(self, batch: Batch, priorities: Tensor | None) -> None:
        if priorities is not None:
            self._tree.set(batch.indices, priorities.double())


class ForgetsPriorities(Replay):
    def restore(self, checkpoint: Checkpoint, newest: dict[int, int]) -> None:
        super().restore(structs.replace(checkpoint, priorities=torch.ones_like(checkpoint.priorities)), newest)


class ForgetsWhatIsToCome(Replay):
    def checkpoint(self) -> Checkpoint:
        self._remembered.clear()
        return super().checkpoint()


class ShiftsRows(Replay):
    def sample(self, batch_size: int | None, progress: float | Tensor) -> Batch:
        batch = super().sample(batch_size, progress)
        return batch._replace(rows={**batch.rows, "reward": batch.reward.roll(1, 0)})


class MixesSamples(Replay):
    def sample(self, batch_size: int | None, progress: float | Tensor) -> Batch:
        batch = super().sample(batch_size, progress)
        return batch._replace(rows={**batch.rows, "obs": batch.obs.transpose(0, 1).reshape(batch.obs.shape)})


class OtherBeta(Replay):
    def sample(self, batch_size: int | None, progress: float | Tensor) -> Batch:
        return super().sample(batch_size, progress / 2)


class CountsReplaced(Replay):
    def add(self, chunk_id: ChunkId, chunk: Chunk) -> None:
        super().add(chunk_id, chunk)
        self._filled = self.inserted


BROKEN = [
    UpdatesOverwritten, ForgetsPriorities, ForgetsWhatIsToCome, ShiftsRows, MixesSamples, OtherBeta, CountsReplaced,
]  # fmt: skip


@pytest.mark.parametrize("broken", BROKEN)
def test_the_random_operations_notice(broken: type[Replay]) -> None:
    with pytest.raises((AssertionError, ValueError)):
        for seed in range(8):
            check_random_operations(SPECS["rainbow"], seed, broken)

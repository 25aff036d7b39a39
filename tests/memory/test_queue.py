"""A queue gives each chunk once, the oldest first, also over restarts; a replay without priorities draws uniformly."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from msgspec import structs

from rainbow_iqn_apex.memory.buffer import Checkpoint
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId, ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import Field
from rainbow_iqn_apex.memory.queue import Queue
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.memory.rows import StepType
from tests.conftest import random_rows
from tests.memory.test_replay import make_chunks as chunks_of
from tests.memory.valid import check_valid
from tests.specs import discrete

SPEC = ChunkSpec(
    2, 0, 5, 1, 5, 5, (("q", Field((2,), "float32")),), (("memory", Field((5,), "float32")),), prioritised=False
)
CPU = torch.device("cpu")
BATCH = 3


def make_chunks(spec: ChunkSpec, count: int, seed: int = 0) -> list[tuple[ChunkId, Chunk]]:
    """Chunks of two actors with numbers of their own, mixed."""
    rng = np.random.default_rng(seed)
    streams = [random_rows(rng, spec.window + count * spec.period, actor + 1) for actor in range(2)]
    return [(sent.id, sent.chunk) for sent in chunks_of(spec, streams, rng)[:count]]


def make_queue(capacity: int = 50) -> Queue:
    return Queue(SPEC, capacity, BATCH, torch.Generator(), CPU)


def learnable(entries: list[tuple[ChunkId, Chunk]]) -> list[tuple[ChunkId, Chunk]]:
    return [entry for entry in entries if (entry[1].rows["step_type"][1:6] != StepType.LAST).any()]


def check_batch(queue: Queue, expected: list[tuple[ChunkId, Chunk]]) -> None:
    batch = queue.sample(len(expected), 0.5)
    assert batch.weights is None and batch.indices is None
    for b, (_, chunk) in enumerate(expected):
        for name, array in chunk.rows.items():
            np.testing.assert_array_equal(batch.rows[name][:, b].numpy(), array, name)
        np.testing.assert_array_equal(batch.state["memory"][b].numpy(), chunk.state["memory"])
    queue.learned(batch, None)


def check_random_operations(seed: int, kind: type[Queue] = Queue) -> None:
    """Adds, batches and restarts in a random order give every chunk once, in the order of the log."""
    rng = np.random.default_rng(seed)
    entries = make_chunks(SPEC, 40, seed)
    queue, wanted, read = kind(SPEC, 1000, BATCH, torch.Generator(), CPU), learnable(entries), 0
    while wanted:
        event = int(rng.integers(6))
        if event < 3 and read < len(entries):
            queue.add(*entries[read])
            read += 1
        elif event < 5 and queue.ready():
            check_batch(queue, wanted[:BATCH])
            wanted = wanted[BATCH:]
        elif event == 5:  # a successor reads the log again, from the oldest message that the checkpoint needs
            saved, oldest = queue.checkpoint(), queue.oldest()
            queue = kind(SPEC, 1000, BATCH, torch.Generator(), CPU)
            queue.restore(saved, dict.fromkeys(range(2), 10**6))
            for chunk_id, chunk in entries[:read]:
                if chunk_id.sequence >= oldest.get(chunk_id.actor, 10**9) and queue.remembers(chunk_id):
                    queue.add(chunk_id, chunk)
            assert not queue._remembered
        if read == len(entries) and len(wanted) < BATCH:
            assert not queue.ready()
            return


@pytest.mark.parametrize("seed", range(12))
def test_every_chunk_is_given_once_and_in_order(seed: int) -> None:
    check_random_operations(seed)


class NewestFirst(Queue):
    def add(self, chunk_id: ChunkId, chunk: Chunk) -> None:
        super().add(chunk_id, chunk)
        self._waiting.rotate(1)


class ForgetsWhatWaits(Queue):
    def restore(self, checkpoint: Checkpoint, newest: dict[int, int]) -> None:
        super().restore(
            structs.replace(checkpoint, ids=checkpoint.ids[1:], priorities=checkpoint.priorities[1:]), newest
        )


@pytest.mark.parametrize("broken", [NewestFirst, ForgetsWhatWaits])
def test_the_check_notices(broken: type[Queue]) -> None:
    with pytest.raises(AssertionError):
        for seed in range(30):
            check_random_operations(seed, broken)


def test_a_full_queue_drops_its_oldest_chunk() -> None:
    queue, entries = make_queue(capacity=20), learnable(make_chunks(SPEC, 12))
    for entry in entries:
        queue.add(*entry)
    assert queue.slots == queue.chunks == 4
    check_batch(queue, entries[-4:])


def test_what_a_queue_cannot_give() -> None:
    with pytest.raises(ValueError, match="whole chunks, and these have 5 samples"):
        Queue(ChunkSpec(1, 0, 5, 1, 5, 1), 50, BATCH, torch.Generator(), CPU)
    with pytest.raises(ValueError, match="a batch of 3, and 0 chunks wait"):
        make_queue().sample(3)


def test_forgets_what_will_not_come_any_more() -> None:
    queue, successor = make_queue(), make_queue()
    for entry in make_chunks(SPEC, 9):
        queue.add(*entry)
    successor.restore(queue.checkpoint(), {0: 4, 1: 10**6})
    assert successor.remembers(ChunkId(0, 3)) and not successor.remembers(ChunkId(0, 5)), "lost, and numbered anew"
    successor.forget({0: 4, 1: 4})
    assert not successor.remembers(ChunkId(0, 3)) and not successor.remembers(ChunkId(1, 3))
    with pytest.raises(ValueError, match="an actor that has sent none"):
        make_queue().restore(queue.checkpoint(), {0: 4})


def test_a_replay_without_priorities_draws_every_sample_equally_often() -> None:
    # Mutation: give LAST rows a chance, too.
    spec = replace(SPEC, sample_length=1, state=())
    replay = Replay(spec, discrete((2, 3), "uint8", 18), 100, torch.Generator().manual_seed(1), CPU)
    entries = make_chunks(spec, 20)
    for entry in entries:
        replay.add(*entry)
    check_valid(replay)
    counts: dict[bytes, int] = {}
    for _ in range(400):
        batch = replay.sample(50, 0.3)
        assert batch.weights is None and batch.indices is None
        replay.learned(batch, torch.ones(50))
        assert (batch.step_type[spec.prefix] != StepType.LAST).all()
        for obs in batch.obs[spec.prefix]:
            name = obs[0].numpy().tobytes()  # stream and row
            counts[name] = counts.get(name, 0) + 1
    learnable = sum(int(spec.learnable(entry[1].rows["step_type"]).sum()) for entry in entries[-replay.slots :])
    assert len(counts) == learnable
    expected = 400 * 50 / learnable
    assert max(abs(count - expected) for count in counts.values()) < 6 * expected**0.5

"""A replay whose new samples get the largest priority so far."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from msgspec import structs

from rainbow_iqn_apex.memory.buffer import Checkpoint
from rainbow_iqn_apex.memory.replay import Replay
from tests.conftest import random_rows
from tests.memory.test_replay import CPU, SPECS, Sent, make_chunks
from tests.memory.valid import check_valid
from tests.specs import discrete

SPEC = SPECS["rainbow"]


def replay_of(*, largest: bool = True) -> Replay:
    draw = torch.Generator().manual_seed(2)
    return Replay(SPEC, discrete((2, 3), "uint8", 18), 4 * SPEC.period, draw, CPU, new_at_largest=largest)


def chunks_of_ones() -> list[Sent]:
    """Chunks whose learnable rows have the priority 1, as an actor sends them."""
    rng = np.random.default_rng(3)
    chunks = make_chunks(SPEC, [random_rows(rng, 120, 1)], rng)
    for sent in chunks:
        assert sent.chunk.priorities is not None
        sent.chunk.priorities[:] = sent.chunk.priorities > 0
    return chunks


def newest(replay: Replay) -> list[float]:
    """The priorities of the newest chunk."""
    return sorted(
        set(replay.checkpoint().priorities[-1 if replay.inserted < 5 else (replay.inserted - 1) % 4].tolist())
    )


def learn(replay: Replay, *values: float) -> None:
    batch = replay.sample(len(values), 0.5)
    replay.learned(batch, torch.tensor(values))


def test_new_samples_get_the_largest_priority_so_far() -> None:
    # Mutations: the largest one of the newest batch; the largest one held, whose samples were learned from again.
    replay, (first, second, third, *_) = replay_of(), chunks_of_ones()
    replay.add(first.id, first.chunk)
    assert newest(replay)[-1] == 1
    for _ in range(20):
        learn(replay, 0.25, 0.5)
    replay.add(second.id, second.chunk)
    assert newest(replay)[-1] == 1, "which all have at first"
    learn(replay, 6.0)
    for _ in range(60):
        learn(replay, *[0.25] * 8)
    assert replay.checkpoint().priorities.max() < 6
    replay.add(third.id, third.chunk)
    assert set(newest(replay)) <= {0.0, 6.0}
    check_valid(replay)


def test_a_restored_replay_goes_on_with_the_same_one() -> None:
    # Mutations: leave the number out of the checkpoint; multiply the priorities that a checkpoint has by it.
    replay, chunks = replay_of(), chunks_of_ones()
    for sent in chunks[:3]:
        replay.add(sent.id, sent.chunk)
    learn(replay, 6.0, 3.0)
    checkpoint = replay.checkpoint()
    again = replay_of()
    again.restore(checkpoint, {chunks[0].id.actor: 10**6})
    for sent in chunks[:3]:
        again.add(sent.id, sent.chunk)
    for sent in chunks[3:6]:
        for each in (replay, again):
            each.add(sent.id, sent.chunk)
    found, expected = again.checkpoint(), replay.checkpoint()
    assert torch.equal(found.priorities, expected.priorities) and torch.equal(found.ids, expected.ids)
    assert found.extra["largest"].tolist() == expected.extra["largest"].tolist() == [6.0]


def test_a_forged_priority_breaks_no_checkpoint() -> None:
    # Mutation: keep the product as it is: beyond float32's numbers, the checkpoint has an infinity that none takes.
    replay, chunks = replay_of(), chunks_of_ones()
    for sent in chunks[:3]:
        replay.add(sent.id, sent.chunk)
    learn(replay, 6.0, 3.0)
    forged = np.full_like(chunks[3].chunk.priorities, 3e38)
    forged[~replay.spec.learnable(chunks[3].chunk.rows["step_type"])] = 0
    replay.add(chunks[3].id, replace(chunks[3].chunk, priorities=forged))
    replay_of().restore(replay.checkpoint(), {chunks[0].id.actor: 10**6})


def test_a_checkpoint_of_before_is_taken_and_others_are_as_they_were() -> None:
    replay = replay_of()
    empty = Checkpoint(7, torch.zeros((0, 2), dtype=torch.int64), torch.zeros((0, SPEC.samples)))
    replay.restore(empty, {})
    assert replay.checkpoint().extra["largest"].tolist() == [1.0]
    assert replay_of(largest=False).checkpoint().extra == {}


@pytest.mark.parametrize("bad", [[0.5], [float("nan")], [float("inf")], [2.0, 3.0], []])
def test_a_number_that_no_replay_has_written_is_refused(bad: list[float]) -> None:
    empty = Checkpoint(0, torch.zeros((0, 2), dtype=torch.int64), torch.zeros((0, SPEC.samples)))
    damaged = structs.replace(empty, extra={"largest": torch.tensor(bad, dtype=torch.float64)})
    with pytest.raises(ValueError, match="the replay's largest priority is no finite number"):
        replay_of().restore(damaged, {})


def test_the_number_is_a_part_of_what_a_gpu_records() -> None:
    # Mutation: the tree alone.
    replay, (sent, *_) = replay_of(), chunks_of_ones()
    replay.add(sent.id, sent.chunk)
    before = [tensor.clone() for tensor in replay.recorded()]
    learn(replay, 6.0)
    changed = [not torch.equal(a, b) for a, b in zip(before, replay.recorded(), strict=True)]
    assert changed[-1] and replay.recorded()[-1].tolist() == [6.0]

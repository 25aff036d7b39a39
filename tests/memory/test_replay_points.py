"""Single points of the replay: overwritten slots, restored priorities, shapes."""

import copy

import numpy as np
import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex.common.errors import RunError
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.chunk import Chunk
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.memory.rows import StepType
from tests.conftest import random_rows
from tests.memory.test_replay import SPECS, Sent, make_chunks, make_replay
from tests.memory.valid import check_valid


def filled(count: int, slots: int = 4) -> tuple[Replay, list[Sent]]:
    """A replay with the first `count` chunks, and all chunks."""
    spec = SPECS["rainbow"]
    rng = np.random.default_rng(0)
    chunks = make_chunks(spec, [random_rows(rng, 60, number + 1) for number in range(3)], rng)
    replay = make_replay(spec, slots * spec.period)
    for sent in chunks[:count]:
        replay.add(sent.id, sent.chunk)
    return replay, chunks


def indices_of(batch: Batch) -> Tensor:
    assert batch.indices is not None
    return batch.indices


def generations_of(batch: Batch) -> Tensor:
    assert batch.generations is not None
    return batch.generations


def test_samples_of_a_batch_are_kept_while_the_ring_goes_on() -> None:
    replay, chunks = filled(2, slots=2)
    batch = replay.sample(7, 0.5)
    before = {name: tensor.clone() for name, tensor in batch.rows.items()}
    for sent in chunks[2:6]:
        replay.add(sent.id, sent.chunk)
    assert all(torch.equal(batch.rows[name], tensor) for name, tensor in before.items())


def test_rows_that_were_overwritten_before_they_were_read_are_refused() -> None:
    replay, chunks = filled(3, slots=3)
    batches = [replay.sample(1, 0.5) for _ in range(40)]
    wanted = [batch.obs.clone() for batch in batches]
    unread = [batch._replace(rows=copy.copy(batch.rows)) for batch in batches]
    for batch in unread:
        batch.rows._copied = {}  # type: ignore[attr-defined]
    replay.add(chunks[3].id, chunks[3].chunk)
    gone = [int(generations_of(batch)[0]) == 0 for batch in batches]
    assert 0 < sum(gone) < 40
    for batch, obs, overwritten in zip(unread, wanted, gone, strict=True):
        if overwritten:
            with pytest.raises(RuntimeError, match="overwritten"):
                assert batch.obs is not None
            with pytest.raises(RuntimeError, match="overwritten"):
                batch.rows.transitions(3, 0.9, 1.0)  # type: ignore[attr-defined]
        else:
            assert torch.equal(batch.obs, obs)


def test_a_restored_replay_draws_what_the_first_one_would_have_drawn() -> None:
    replay, chunks = filled(5, slots=3)
    replay.learned(batch := replay.sample(16, 0.4), torch.rand(16, generator=torch.Generator().manual_seed(3)))
    successor, _ = filled(0, slots=3)
    successor.restore(replay.checkpoint(), dict.fromkeys(range(10), 10**6))
    for sent in chunks[2:5]:
        successor.add(sent.id, sent.chunk)
    successor.generator.set_state(replay.generator.get_state())
    for new in [None, *chunks[5:8]]:
        if new:
            replay.add(new.id, new.chunk)
            successor.add(new.id, new.chunk)
        a, b = replay.sample(9, 0.4), successor.sample(9, 0.4)
        assert a.rows.keys() == b.rows.keys() and len(a.rows) == 5
        assert all(torch.equal(tensor, b.rows[name]) for name, tensor in a.rows.items())
        assert a.weights is not None and b.weights is not None
        assert torch.equal(a.weights, b.weights) and torch.equal(indices_of(a), indices_of(b))
        assert torch.equal(generations_of(a), generations_of(b))
    replay.learned(batch, torch.full((16,), 500.0))  # of before the restart: by now all are overwritten
    assert replay.checkpoint().priorities.max() < 500


def test_an_empty_replay_says_so() -> None:
    replay, chunks = filled(0)
    assert (replay.steps, replay.oldest()) == (0, {})
    assert len(replay.checkpoint().ids) == 0
    check_valid(replay)
    with pytest.raises(RunError, match="nothing"):
        replay.sample(3, 0.5)
    blank = chunks[0].chunk
    replay.add(chunks[0].id, Chunk(0, 0, blank.rows, {}, np.zeros_like(blank.priorities)))
    with pytest.raises(RunError, match="nothing"):
        replay.sample(3, 0.5)


def test_check_valid_notices_damage() -> None:
    for damage in range(5):
        replay, _ = filled(6)
        check_valid(replay)
        if damage == 0:
            replay._filled += 1
        elif damage == 1:
            replay._ids[0] = replay._ids[1]
        elif damage == 2:
            replay.ring.rows["step_type"][:] = int(StepType.LAST)
        elif damage == 3:
            replay._steps[1] += 1
        else:
            replay._tree.set(torch.arange(32), torch.ones(32))  # LAST rows among them
        with pytest.raises(ValueError, match=r"held|LAST"):
            check_valid(replay)


def test_chunks_that_redis_has_lost_are_not_waited_for() -> None:
    """Their sequence numbers will come again, and stand for other chunks."""
    replay, chunks = filled(3, slots=3)
    successor, _ = filled(0, slots=3)
    lost = chunks[2].id
    newest = dict.fromkeys(range(10), 10**6) | {lost.actor: lost.sequence - 1}
    successor.restore(replay.checkpoint(), newest)
    assert [successor.remembers(sent.id) for sent in chunks[:3]] == [
        sent.id.actor != lost.actor or sent.id.sequence < lost.sequence for sent in chunks[:3]
    ]
    assert not successor.remembers(lost)

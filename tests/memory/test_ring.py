"""The ring in the machine's memory gives what the ring of any device gives."""

import numpy as np
import pytest
import torch

from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.fast.ring import MemoryRing, RingRows
from rainbow_iqn_apex.memory.replay import Replay
from rainbow_iqn_apex.memory.ring import Ring
from tests.conftest import random_rows
from tests.memory.test_replay import SPECS, make_chunks, make_replay


def pair(name: str, seed: int) -> tuple[Replay, Replay]:
    """Two replays with the same chunks, of which one has the ring of any device."""
    spec, rng = SPECS[name], np.random.default_rng(seed)
    chunks = make_chunks(spec, [random_rows(rng, 90, number + 1) for number in range(3)], rng)
    fast = make_replay(spec, 5 * spec.period, seed)
    slow = make_replay(spec, 5 * spec.period, seed)
    slow.ring = Ring(spec, slow.row_fields, slow.slots, slow.device)
    assert isinstance(fast.ring, MemoryRing) and not isinstance(slow.ring, MemoryRing)
    for sent in chunks:
        fast.add(sent.id, sent.chunk)
        slow.add(sent.id, sent.chunk)
    return fast, slow


def check_same(fast: Batch, slow: Batch) -> None:
    assert fast.rows.keys() == slow.rows.keys() and fast.state.keys() == slow.state.keys()
    named = {f"rows.{name}": (fast.rows[name], slow.rows[name]) for name in slow.rows}
    named |= {f"state.{name}": (fast.state[name], slow.state[name]) for name in slow.state}
    named |= {name: (getattr(fast, name), getattr(slow, name)) for name in ("weights", "indices", "generations")}
    for name, (found, wanted) in named.items():
        assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), name
        assert found.numpy().tobytes() == wanted.numpy().tobytes(), name


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("tensor_beta", [False, True])
def test_both_rings_sample_the_same(name: str, tensor_beta: bool) -> None:
    for seed in range(3):
        fast, slow = pair(name, seed)
        for beta in (0.0, 0.4, 0.5, 0.7312, 1.0):
            given = torch.tensor(beta) if tensor_beta else beta
            a, b = fast.sample(13, given), slow.sample(13, given)
            assert isinstance(a.rows, RingRows) and isinstance(b.rows, dict)
            check_same(a, b)
            assert a.rows.keys() >= {f"extras.{field}" for field, _ in fast.spec.extras}


def test_the_comparison_sees_the_last_bit_of_a_weight() -> None:
    fast, slow = pair("rainbow", 0)
    a, b = fast.sample(13, 0.4), slow.sample(13, 0.4)
    assert a.weights is not None
    with pytest.raises(AssertionError, match="weights"):
        check_same(a._replace(weights=torch.nextafter(a.weights, torch.tensor(2.0))), b)
    with pytest.raises(AssertionError, match=r"rows\.obs"):
        check_same(a._replace(rows={**a.rows, "obs": a.obs.roll(1, 0)}), b)


def test_a_batch_goes_to_another_device_with_all_its_rows() -> None:
    replay = make_replay(SPECS["pairs, overlapping"], 20)
    rng = np.random.default_rng(0)
    for sent in make_chunks(replay.spec, [random_rows(rng, 60, number + 1) for number in range(3)], rng):
        replay.add(sent.id, sent.chunk)
    batch = replay.sample(4, 0.5)
    assert batch.to(torch.device("cpu")) is batch
    moved = batch.to(torch.device("meta"))
    assert moved.rows.keys() == batch.rows.keys() and moved.state.keys() == batch.state.keys()
    assert moved.weights is not None and moved.indices is not None and moved.generations is not None
    tensors = [*moved.rows.values(), *moved.state.values(), moved.weights, moved.indices, moved.generations]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert moved.obs.shape == batch.obs.shape

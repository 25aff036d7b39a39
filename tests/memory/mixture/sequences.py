"""Sequences of two actors whose every number says where it comes from, and mixtures of them. No test is here."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId, ChunkSpec
from rainbow_iqn_apex.memory.environment_spec import Field
from rainbow_iqn_apex.memory.mixture.buffer import Mixture
from rainbow_iqn_apex.memory.mixture.spec import Sampling, parse_mix
from rainbow_iqn_apex.memory.rows import Arrays, StepType
from tests.specs import discrete

F = 4
SPEC = ChunkSpec(
    3, 2, 5, 1, 5, 5, (("features", Field((F,), "float32")),), (("memory", Field((6,), "float32")),), prioritised=False
)
ENVIRONMENT = discrete((2, 3), "uint8", 18)
CPU = torch.device("cpu")
QUEUE_ROWS = 60  # 12 sequences
MIXES = {  # smallest batches of 1, 3 and 7
    "queue alone": "queue:1",
    "clear": "uniform:2/3:9,queue:1/3",
    "young": "queue:1/7,elite:6/7:30",
    "all": "queue:1/7,uniform:1/7:5,prioritised:2/7:11,attentive:1/7:8,elite:2/7:13",
}
BATCHES = {"queue alone": 4, "clear": 9, "young": 14, "all": 14}


class Sent(NamedTuple):
    id: ChunkId
    chunk: Chunk

    @property
    def learnable(self) -> bool:
        return bool(SPEC.learnable(self.chunk.rows["step_type"]).any())


def make_sent(rng: np.random.Generator, actor: int, sequence: int) -> Sent:
    """A chunk of random rows; one in eight has no row to learn from."""
    step_type = rng.choice([StepType.MID, StepType.MID, StepType.FIRST, StepType.LAST], SPEC.window).astype(np.uint8)
    if rng.integers(8) == 0:
        step_type[SPEC.prefix : SPEC.prefix + SPEC.length] = StepType.LAST
    rows: Arrays = {
        "obs": rng.integers(256, size=(SPEC.window, 2, 3)).astype(np.uint8),
        "step_type": step_type,
        "reward": rng.normal(size=SPEC.window).astype(np.float32),
        "discount": rng.uniform(size=SPEC.window).astype(np.float32),
        "action": rng.integers(18, size=SPEC.window).astype(np.int32),
        "extras.features": rng.normal(size=(SPEC.window, F)).astype(np.float32),
    }
    state = {"memory": rng.normal(size=6).astype(np.float32)}
    return Sent(ChunkId(actor, sequence), Chunk(0, int(rng.integers(99)), rows, state, None))


class Stream:
    """Sends the chunks of two actors in a random order, with numbers that leave out those of episodes."""

    def __init__(self, seed: int, first: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self._last = [first, first]
        self.sent: list[Sent] = []

    def next(self) -> Sent:
        actor = int(self._rng.integers(2))
        self._last[actor] += int(self._rng.integers(1, 3))
        self.sent.append(make_sent(self._rng, actor, self._last[actor]))
        return self.sent[-1]


def measure(rows: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Tensor:
    """What a network might make of sequences: [rows with a full stack, B, F], of all that it may look at."""
    frames = rows["obs"].flatten(2).float()  # [T, B, 6]
    stacks = sum(frames[i : len(frames) - 2 + i] * (i + 1) for i in range(3)) / 500  # [T - 2, B, 6]
    assert isinstance(stacks, Tensor)
    return torch.tanh(stacks[..., :F] - state["memory"][:, :F]) + rows["reward"][2:, :, None] * stacks[..., 2:]


def measure_few(rows: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> Tensor:
    """Measure at most as many sequences at once as a mixture may ask for."""
    assert rows["obs"].shape[1] <= 64
    return measure(rows, state)


def make_mixture(mix: str, batch_size: int, kind: type[Mixture] = Mixture, settings: Sampling | None = None) -> Mixture:
    chosen, draw = settings or Sampling(annealed_over=15), torch.Generator().manual_seed(0)
    parts, rows = parse_mix(mix), QUEUE_ROWS
    mixture = kind(SPEC, ENVIRONMENT, parts, batch_size, draw, CPU, queue_capacity=rows, settings=chosen)
    mixture.features.measure = measure_few
    return mixture


def assert_same_batch(one: Batch, other: Batch) -> None:
    for name, tensor in (*one.rows.items(), *one.state.items()):
        assert tensor.numpy().tobytes() == {**other.rows, **other.state}[name].numpy().tobytes(), name
    for part, wanted in zip(one[2:], other[2:], strict=True):
        assert part is wanted if part is None or wanted is None else torch.equal(part, wanted)

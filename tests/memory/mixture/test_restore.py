"""A restored mixture continues with the very batches of the one before; what is lost or damaged breaks nothing."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import structs
from torch import Tensor

from rainbow_iqn_apex.common.errors import UserError
from rainbow_iqn_apex.memory.batch import Batch
from rainbow_iqn_apex.memory.buffer import Checkpoint
from rainbow_iqn_apex.memory.chunk import Chunk, ChunkId
from rainbow_iqn_apex.memory.mixture.buffer import Mixture
from rainbow_iqn_apex.memory.mixture.spec import Sampling
from tests.memory.mixture.sequences import BATCHES, MIXES, Sent, Stream, assert_same_batch, make_mixture, make_sent
from tests.memory.valid import check_valid

pytestmark = pytest.mark.usefixtures("one_thread")
SETTINGS = [
    Sampling(annealed_over=15, strategy=strategy, elite_insertion=strategy % 2 > 0) for strategy in (1, 2, 3, 4)
]
NEWEST = {0: 10**6, 1: 10**6}
LATER = 10**7  # numbers of chunks that no checkpoint names
Damage = Callable[[Checkpoint], Checkpoint]


def play(mixture: Mixture, stream: Stream, rng: np.random.Generator, operations: int) -> list[Batch]:
    """Add and learn in a random order; return the batches."""
    batches = []
    for _ in range(operations):
        if not mixture.ready() or (mixture.room and rng.integers(2)):
            mixture.add(*stream.next())
        else:
            batches.append(mixture.sample(None))
            priorities = torch.from_numpy(rng.uniform(0, 9, mixture.batch_size))
            mixture.learned(batches[-1], priorities)
    return batches


def next_batches(mixture: Mixture, seed: int) -> list[Batch]:
    """Play on, always the same, until 20 batches were learned from."""
    rng, stream, batches = np.random.default_rng(seed), Stream(seed + 1000, LATER), list[Batch]()
    while len(batches) < 20:
        batches += play(mixture, stream, rng, 1)
    return batches


def read_again(mixture: Mixture, sent: list[Sent], rng: np.random.Generator, share: float = 1) -> None:
    """Add a share of what is remembered: each actor's chunks in their order, but the actors otherwise mixed."""
    oldest = mixture.oldest()
    by_actor = [
        [s for s in sent if s.id.actor == actor and s.id.sequence >= oldest.get(actor, 10**9)] for actor in (0, 1)
    ]
    order = rng.permutation([actor for actor in (0, 1) for _ in by_actor[actor]])
    for actor in order[: int(share * len(order))]:
        chunk_id, chunk = by_actor[actor].pop(0)
        if mixture.remembers(chunk_id):
            room = mixture.room
            mixture.add(chunk_id, chunk)
            assert mixture.room == room and not mixture.remembers(chunk_id)
        check_valid(mixture)


def check_restart(mix: str, seed: int, kind: type[Mixture] = Mixture) -> None:
    rng, stream = np.random.default_rng(seed), Stream(seed)
    settings = SETTINGS[seed % 4]
    mixture = make_mixture(MIXES[mix], BATCHES[mix], kind, settings)
    play(mixture, stream, rng, int(rng.integers(5, 120)))
    if seed % 3 == 0:
        mixture.shrink()
    checkpoint, oldest = mixture.checkpoint(), mixture.oldest()
    for share in (float(rng.uniform(0, 0.9)), 1.0):  # stopped before all have come, and resumed once more
        successor = make_mixture(MIXES[mix], BATCHES[mix], kind, settings)
        successor.restore(checkpoint, dict(NEWEST))
        check_valid(successor)
        assert successor.oldest() == oldest and successor.inserted == mixture.inserted
        assert len(successor._pool.awaited) == len(checkpoint.ids)
        read_again(successor, stream.sent, rng, share)
        checkpoint = successor.checkpoint()
    assert not successor._pool.awaited and successor.room == mixture.room and successor.steps == mixture.steps
    assert_same_checkpoint(checkpoint, mixture.checkpoint())
    successor.generator.set_state(mixture.generator.get_state())
    one, other = (next_batches(each, seed) for each in (mixture, successor))
    for batch, same in zip(one, other, strict=True):
        assert_same_batch(batch, same)
    assert_same_checkpoint(mixture.checkpoint(), successor.checkpoint())


def assert_same_checkpoint(one: Checkpoint, other: Checkpoint) -> None:
    assert (
        one.first == other.first and torch.equal(one.ids, other.ids) and torch.equal(one.priorities, other.priorities)
    )
    assert one.extra.keys() == other.extra.keys()
    for name, tensor in one.extra.items():
        assert torch.equal(tensor, other.extra[name]), name


@pytest.mark.parametrize("mix", MIXES)
def test_a_restored_mixture_gives_the_same_batches(mix: str) -> None:
    for seed in range(4):
        check_restart(mix, seed)


def changed(name: str, change: Callable[[Tensor], Tensor]) -> type[Mixture]:
    """A mixture that restores another value."""

    class Broken(Mixture):
        def restore(self, checkpoint: Checkpoint, newest: dict[int, int]) -> None:
            extra = checkpoint.extra | {name: change(checkpoint.extra[name])}
            super().restore(structs.replace(checkpoint, extra=extra), newest)

    return Broken


class ForgetsPriorities(Mixture):
    def restore(self, checkpoint: Checkpoint, newest: dict[int, int]) -> None:
        super().restore(structs.replace(checkpoint, priorities=torch.ones_like(checkpoint.priorities)), newest)


class ForgetsWhatIsToCome(Mixture):
    def checkpoint(self) -> Checkpoint:
        self.forget(NEWEST)
        return super().checkpoint()


class TakesTheOrderOfTheLog(Mixture):
    def add(self, chunk_id: ChunkId, chunk: Chunk) -> None:
        if self.remembers(chunk_id):
            slot = self._pool.awaited[chunk_id]
            if slot in self._queue.waiting:
                self._queue.waiting.remove(slot)
                self._queue.waiting.append(slot)
        super().add(chunk_id, chunk)


def test_batches_are_as_small_as_before_the_restart_unless_another_size_is_wanted() -> None:
    # Mutations: restore the size of before, or the wanted one, in all cases.
    mixture, stream = make_mixture(MIXES["clear"], 12), Stream(3)
    play(mixture, stream, np.random.default_rng(3), 40)
    assert mixture.shrink() == 9
    for wanted, found in ((12, 9), (6, 6), (3, 3)):
        restored = make_mixture(MIXES["clear"], wanted)
        restored.restore(mixture.checkpoint(), NEWEST)
        assert restored.batch_size == found


BROKEN = [
    changed("waiting", lambda waiting: waiting.roll(1)),
    changed("sampled", torch.zeros_like),
    changed("largest", torch.ones_like),
    changed("slots", lambda slots: slots.argsort().argsort()),
    changed("counts", lambda values: values * torch.tensor([1, 0, 1, 1])),
    ForgetsPriorities,
    ForgetsWhatIsToCome,
    TakesTheOrderOfTheLog,
]


@pytest.mark.parametrize("broken", BROKEN)
def test_the_check_notices(broken: type[Mixture]) -> None:
    with pytest.raises((AssertionError, ValueError)):
        for seed in range(8):
            check_restart("all", seed, broken)


def grown(seed: int = 5, operations: int = 80, mix: str = "all") -> tuple[Mixture, Stream]:
    mixture, stream = make_mixture(MIXES[mix], BATCHES[mix], settings=SETTINGS[seed % 4]), Stream(seed)
    play(mixture, stream, np.random.default_rng(seed), operations)
    return mixture, stream


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("how", ["beyond the newest", "forgotten", "all"])
def test_what_is_lost_leaves_a_valid_mixture(seed: int, how: str) -> None:
    mixture, stream = grown(seed)
    rng, checkpoint = np.random.default_rng(seed), mixture.checkpoint()
    middle = {actor: int(checkpoint.ids[checkpoint.ids[:, 0] == actor, 1].median()) for actor in (0, 1)}
    successor = make_mixture(MIXES["all"], 14, settings=SETTINGS[seed % 4])
    successor.restore(checkpoint, {"beyond the newest": middle, "all": {0: 0, 1: 0}}.get(how, dict(NEWEST)))
    check_valid(successor)
    if how == "forgotten":
        successor.forget(middle)
        check_valid(successor)
        assert all(chunk_id.sequence > middle[chunk_id.actor] for chunk_id in filter(None, successor._pool.ids))
    late = [make_sent(rng, actor, LATER + number) for actor in (0, 1) for number in range(20)]
    for number, (chunk_id, chunk) in enumerate(late[::2]):  # before what is remembered
        if number % 3 == 0 and successor.ready():
            successor.learned(successor.sample(None), torch.ones(14))
        successor.add(chunk_id, chunk)
        check_valid(successor)
    read_again(successor, stream.sent, rng)
    assert not successor._pool.awaited
    play(successor, Stream(77, 2 * LATER), rng, 40)
    check_valid(successor)


def test_a_table_that_has_lost_all_repeats_what_is_fresh() -> None:
    mixture, stream = make_mixture("queue:1/3,uniform:2/3:2", 3), Stream(1)
    while mixture.room > 3:
        mixture.add(*stream.next())
    successor = make_mixture("queue:1/3,uniform:2/3:2", 3)
    known = [sent for sent in stream.sent if sent.learnable][:-2]
    last = {actor: max((s.id.sequence for s in known if s.id.actor == actor), default=0) for actor in (0, 1)}
    successor.restore(mixture.checkpoint(), last)
    read_again(successor, stream.sent, np.random.default_rng(1))
    batch = successor.sample(None)
    assert batch.generations is not None and batch.generations.tolist() == [0, 0, 0]


def test_awaited_sequences_are_dropped_by_a_full_queue() -> None:
    mixture, _ = grown(mix="queue alone", operations=6)
    successor = make_mixture("queue:1", 4, settings=SETTINGS[1])
    successor.restore(mixture.checkpoint(), dict(NEWEST))
    stream = Stream(30, LATER)
    while sum(sent.learnable for sent in stream.sent) < 12:
        successor.add(*stream.next())
        check_valid(successor)
    assert not successor._pool.awaited and successor.room == 0


def with_extra(name: str, change: Callable[[Tensor], Any]) -> Damage:
    return lambda saved: structs.replace(saved, extra=saved.extra | {name: change(saved.extra[name])})


def placed(at: int, value: int) -> Callable[[Tensor], Tensor]:
    def change(tensor: Tensor) -> Tensor:
        return tensor.index_fill(0, torch.tensor([at]), value)

    return change


DAMAGES: dict[str, tuple[Damage, str]] = {
    "another buffer": (lambda saved: structs.replace(saved, extra={}), "not one of a mixture"),
    "another mix": (
        lambda saved: structs.replace(saved, extra=saved.extra | {"more": saved.ids[:, 0]}),
        "not one of a mixture",
    ),
    "a float": (with_extra("numbers", Tensor.float), "the numbers of the replay's tables are not as they should be"),
    "a matrix": (with_extra("slots", lambda slots: slots[None]), "tables that are none"),
    "too few": (with_extra("sampled", lambda sampled: sampled[:-1]), "the sampled of the replay's tables are not"),
    "without counts": (with_extra("counts", lambda counts: counts[:2]), "the counts of the replay's tables are not"),
    "two in one slot": (with_extra("slots", lambda slots: slots.index_copy(0, torch.tensor([1]), slots[:1])), "twice"),
    "a slot beyond": (with_extra("slots", placed(0, 10**6)), "the slots of the replay's tables are beyond"),
    "a negative slot": (with_extra("slots", placed(0, -1)), "the slots of the replay's tables are beyond"),
    "a number beyond": (with_extra("numbers", placed(0, 10**6)), "the numbers of the replay's tables are beyond"),
    "an old number": (with_extra("numbers", lambda numbers: numbers.clamp(min=0) * 0), "the numbers of the replay"),
    "waiting twice": (with_extra("waiting", lambda waiting: waiting[:1].repeat(2)), "the waiting chunks of the replay"),
    "waiting beyond": (with_extra("waiting", placed(0, 99)), "the waiting chunks of the replay"),
    "positions twice": (with_extra("positions", lambda positions: positions * 0), "the positions of the replay"),
    "negative counts": (with_extra("sampled", placed(2, -1)), "sampled less than never"),
    "huge counts": (with_extra("sampled", placed(2, 2**62)), "sampled less than never"),
    "no largest": (with_extra("largest", lambda largest: largest * torch.nan), "largest priority is none"),
    "no updates": (with_extra("counts", placed(1, -1)), "a wrong number of updates"),
    "more added": (with_extra("counts", placed(0, 10**6)), "more sequences than chunks"),
    "no such batch": (with_extra("counts", placed(2, 13)), "batches of 13 are none of this mixture"),
    "a larger batch": (with_extra("counts", placed(2, 21)), "batches of 21 are none of this mixture"),
    "another actor": (lambda saved: structs.replace(saved, ids=saved.ids + 7), "an actor that has sent none"),
    "a count": (lambda saved: structs.replace(saved, first=-1), "a wrong count of chunks"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_refused(damage: str) -> None:
    change, reason = DAMAGES[damage]
    mixture, _ = grown(seed=8)
    with pytest.raises(ValueError, match=reason):
        make_mixture(MIXES["all"], 14, settings=SETTINGS[0]).restore(change(mixture.checkpoint()), dict(NEWEST))


def test_a_queue_that_is_too_short_names_the_batch_size() -> None:
    mixture, _ = grown(seed=8)
    longer = with_extra("waiting", lambda _: torch.arange(13))(mixture.checkpoint())
    with pytest.raises(UserError, match=r"^--batch-size: 13 sequences of the checkpoint wait, .* has room for 12:"):
        make_mixture(MIXES["all"], 14, settings=SETTINGS[0]).restore(longer, dict(NEWEST))

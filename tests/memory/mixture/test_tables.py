"""Each table gives what it promises: proportions, the nearest, the least changed, and room for the best."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor

from rainbow_iqn_apex.memory.mixture.buffer import Mixture
from rainbow_iqn_apex.memory.mixture.spec import Sampling
from rainbow_iqn_apex.memory.mixture.tables import EliteTable, PrioritisedTable
from rainbow_iqn_apex.memory.rows import Array, StepType
from tests.ground_truth import mixture as truth
from tests.memory.mixture.sequences import SPEC, Sent, Stream, make_mixture, measure
from tests.memory.valid import check_valid

pytestmark = pytest.mark.usefixtures("one_thread")


def fill(mixture: Mixture, count: int) -> list[Sent]:
    """Add as many learnable sequences, and return them."""
    stream = Stream(0)
    while sum(sent.learnable for sent in stream.sent) < count:
        mixture.add(*stream.next())
    return [sent for sent in stream.sent if sent.learnable]


def present_of(sents: list[Sent]) -> Array:
    """Measure sequences: [rows with a full stack, B, F]."""
    rows = {name: torch.from_numpy(np.stack([s.chunk.rows[name] for s in sents], 1)) for name in sents[0].chunk.rows}
    return measure(rows, {"memory": torch.from_numpy(np.stack([s.chunk.state["memory"] for s in sents]))}).numpy()


def middle(sents: list[Sent], name: str) -> Array:
    return np.stack([sent.chunk.rows[name][4:9] for sent in sents], 1)  # [T, B, ...]


def changes(sents: list[Sent], settings: Sampling) -> Array:
    """How far each sequence's features have moved: [B]."""
    learnable = middle(sents, "step_type") != StepType.LAST
    present = present_of(sents)[2:7]
    return truth.distance(settings.distance, middle(sents, "extras.features"), present, learnable, settings.norm)


def drawn(mixture: Mixture) -> list[int]:
    """Draw a batch, and return the numbers of what was replayed."""
    batch = mixture.sample(None)
    mixture.put_back([batch])
    assert batch.generations is not None and batch.replayed is not None
    return [int(number) for number in batch.generations[batch.replayed]]


def spied(monkeypatch: pytest.MonkeyPatch, candidates: list[int]) -> None:
    """Let elite and attentive tables draw these positions as candidates."""
    monkeypatch.setattr("rainbow_iqn_apex.memory.mixture.tables.draw", lambda *_: torch.tensor(candidates))


@pytest.mark.parametrize("distance", ["p-norm", "cosine", "kl"])
@pytest.mark.parametrize("strategy", [1, 2, 3, 4])
def test_elite_tables_choose_by_the_change_of_features(
    distance: str, strategy: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Sampling(distance=distance, strategy=strategy, norm=3.0)
    mixture = make_mixture("queue:1/4,elite:3/4:40", 4, settings=settings)
    sents = fill(mixture, 25)
    candidates = [7, 3, 19, 0, 24, 11, 5, 16, 2, 9]
    spied(monkeypatch, candidates)
    far = changes([sents[i] for i in candidates], settings).tolist()
    times = [0] * 25
    for _ in range(5):
        wanted = [candidates[c] for c in truth.select(strategy, far, [times[i] for i in candidates], 3)]
        assert drawn(mixture) == wanted
        for number in wanted:
            times[number] += 1
    assert isinstance(mixture._elite, EliteTable) and mixture._elite.sampled[:25].tolist() == times


@pytest.mark.parametrize("distance", ["p-norm", "cosine", "kl"])
def test_attentive_tables_choose_what_is_nearest_to_the_newest_row(
    distance: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mixture = make_mixture("queue:1/4,attentive:3/4:20", 4, settings=Sampling(distance=distance))
    sents = fill(mixture, 25)[5:]  # number n stands at n - 20 or n
    spied(monkeypatch, list(range(20)))
    present = present_of(sents)
    newest = np.broadcast_to(present[-1, -1], (5, 20, 4))
    learnable = middle(sents, "step_type") != StepType.LAST
    far = truth.distance(distance, newest, present[2:7], learnable, 2.0)

    def check(sign: int) -> None:
        order = np.argsort(sign * far)
        assert drawn(mixture) == [5 + int(i) for i in order[:3]]

    check(1)
    with pytest.raises(AssertionError):
        check(-1)  # the mutation: the farthest


def test_elite_sampling_becomes_uniform() -> None:
    mixture = make_mixture("queue:1/4,elite:3/4:9", 4, settings=Sampling(candidates=3.0, annealed_over=4))
    sents = fill(mixture, 9)
    far = changes(sents, Sampling())
    ranks = {int(number): rank for rank, number in enumerate(np.argsort(far))}
    assert all(sorted(map(ranks.__getitem__, drawn(mixture))) == [0, 1, 2] for _ in range(9)), "9 candidates of 9"

    def unmeasured(*_: object) -> Tensor:
        raise AssertionError("a measurement that decides nothing")

    for _ in range(4):
        assert mixture.sample(None).generations is not None
        mixture._updates += 1
    mixture.features.measure = unmeasured
    for number in range(12):
        mixture.add(*sents[number % 9]._replace(id=sents[0].id._replace(sequence=500 + number)))
    often = Counter(number for _ in range(300) for number in drawn(mixture))
    assert len(often) == 9 and max(often.values()) - min(often.values()) < 60


@pytest.mark.parametrize("newest_wins", [False, True])
def test_elite_insertion_overwrites_what_has_changed_most(newest_wins: bool) -> None:
    settings = Sampling(elite_insertion=True)
    mixture, stream = make_mixture("queue:1/2,elite:1/2:6", 2, settings=settings), Stream(7)
    held: list[tuple[int, Sent]] = []
    number = 0
    with pytest.raises(AssertionError) if newest_wins else pytest.MonkeyPatch.context():
        for _ in range(80):
            sent = stream.next()
            mixture.add(*sent)
            check_valid(mixture)
            if not sent.learnable:
                continue
            if len(held) == 6:
                oldest = min(held, key=lambda entry: entry[0])
                far = changes([entry for _, entry in held], settings)
                worst = held[int((-far if newest_wins else far).argmax())]
                held.remove(oldest if oldest[0] <= number - 24 else worst)
            held.append((number, sent))
            number += 1
            assert mixture._elite is not None
            slots = mixture._elite.references()
            assert {mixture._pool.ids[slot] for slot in slots} == {entry.id for _, entry in held}


def test_draws_are_proportional_to_priorities() -> None:
    def check(exponent: float) -> None:
        mixture = make_mixture("queue:1/8,prioritised:7/8:10", 8)
        fill(mixture, 14)  # at positions 0 to 3 stand 10 to 13
        batch = mixture.sample(None)
        held = torch.arange(4, 14)
        priorities = torch.linspace(0.5, 5, 10, dtype=torch.float64)
        mixture.learned(batch._replace(generations=torch.arange(14)), torch.cat((torch.full((4,), 99.0), priorities)))
        check_valid(mixture)
        often = Counter(number for _ in range(400) for number in drawn(mixture))
        for number, priority in zip(held.tolist(), priorities.tolist(), strict=True):
            share = priority**exponent / float((priorities**exponent).sum())
            assert abs(often[number] / 2800 - share) < 0.03

    check(1)
    with pytest.raises(AssertionError):
        check(0)  # the mutation: uniform draws


def test_new_sequences_have_the_largest_priority_and_overwritten_ones_are_left_alone() -> None:
    mixture = make_mixture("queue:1/4,prioritised:3/4:6", 4)
    sents = fill(mixture, 6)
    table = mixture._prioritised
    assert isinstance(table, PrioritisedTable) and table.priorities().tolist() == [1.0] * 6
    batch = mixture.sample(None)._replace(generations=torch.tensor([0, 1, 2, 3]))
    mixture.learned(batch, torch.tensor([3.0, 0.5, 0.0, 2.0]))
    assert table.priorities().tolist() == [3.0, 0.5, 1e-9, 2.0, 1.0, 1.0]
    table.reserve_priority(int(table.slots[2]), 0.0)
    table.arrive(int(table.slots[2]))
    assert table.priorities().tolist() == [3.0, 0.5, 1e-9, 2.0, 1.0, 1.0], "after a restart not a bit less"
    mixture.add(*sents[0]._replace(id=sents[0].id._replace(sequence=900)))
    mixture.learned(batch, torch.tensor([8.0, 0.25, 4.0, 2.0]))  # number 0 is held no more
    assert table.priorities().tolist() == [3.0, 0.25, 4.0, 2.0, 1.0, 1.0]
    mixture.add(*sents[1]._replace(id=sents[1].id._replace(sequence=901)))
    assert table.priorities()[1] == 4, "the largest of those held at their time"
    some = mixture.priorities(3)
    assert some is not None and some.tolist() == [3.0, 4.0, 1.0]
    check_valid(mixture)


def test_a_young_table_repeats_what_it_has() -> None:
    for mix in ("uniform:6/7:30", "attentive:6/7:30", "elite:6/7:30", "prioritised:6/7:30"):
        mixture = make_mixture("queue:1/7," + mix, 21)
        fill(mixture, 5)
        often = Counter(drawn(mixture))
        assert sum(often.values()) == 18 and (mix[0] == "p" or sorted(often.values()) == [3, 3, 4, 4, 4])


def test_many_candidates_are_measured_in_slices() -> None:
    mixture = make_mixture("queue:1/8,elite:7/8:200", 32, settings=Sampling(candidates=7.0))
    sents = fill(mixture, 190)
    assert mixture._elite is not None  # `measure_few` refuses more than 64 at once
    found = mixture.features.changes(torch.from_numpy(mixture._elite.slots[:190]))
    np.testing.assert_allclose(found, changes(sents, Sampling()), rtol=1e-5)
    assert len(drawn(mixture)) == 28 and SPEC.prefix == 4


def test_a_mixture_without_distances_measures_nothing() -> None:
    mixture = make_mixture("queue:1/4,uniform:1/4:5,prioritised:1/2:7", 4)
    mixture.features.measure = None
    fill(mixture, 12)
    assert len(drawn(mixture)) == 3

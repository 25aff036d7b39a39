"""A mix is read exactly, or refused in one line; sizes follow from it as whole numbers."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rainbow_iqn_apex.memory.mixture.spec import (
    Sampling,
    TableSpec,
    counts,
    longest_held,
    most_chunks,
    parse_mix,
    shrunk,
    step,
)

ALL = "queue:1/7,uniform:1/7:5,prioritised:2/7:11,attentive:1/7:8,elite:2/7:13"


def test_a_mix_is_read_exactly() -> None:
    assert parse_mix("queue:1") == (TableSpec("queue", Fraction(1), None),)
    assert parse_mix("uniform:.7:10000,queue:0.3") == (
        TableSpec("uniform", Fraction(7, 10), 10_000),
        TableSpec("queue", Fraction(3, 10), None),
    ), "0.3 + 0.7 are 1, whatever floats make of them"
    assert counts(parse_mix(ALL), 21) == (3, 3, 6, 3, 6)
    assert ",".join(map(str, parse_mix(ALL))) == ALL


WRONG = {
    "": "there is no table '', only queue, uniform, prioritised, attentive and elite",
    "queue:0.5,uniforn:0.5:100": "there is no table 'uniforn', only",
    "queue:0.5,queue:0.5": "the table queue stands there twice",
    "queue:0.5,elite:0.25:100,elite:0.25:200": "the table elite stands there twice",
    "uniform:1:100": "there is no queue",
    "queue": "'queue' is not a table, its share and its capacity",
    "queue:0.5:1:2": "is not a table, its share and its capacity",
    "queue:1:100": "the queue has no capacity of its own",
    "queue:0.5,uniform:0.5": "the table uniform has no capacity in sequences, as in uniform:0.5:10000",
    "queue:0.5,uniform:0.5:x": "the capacity of uniform is no whole number of sequences: 'x'",
    "queue:0.5,uniform:0.5:-4": "no whole number",
    "queue:0.5,uniform:0.5:": "no whole number",
    "queue:0.5,uniform:0.5:1": "must be 2 to 10000000 sequences, not 1",
    "queue:0.5,uniform:0.5:10000001": "must be 2 to 10000000 sequences, not 10000001",
    "queue:half,uniform:0.5:100": "the share of queue is no number such as 0.25 or 1/3: 'half'",
    "queue:nan,uniform:0.5:100": "is no number",
    "queue:1/0,uniform:0.5:100": "is no number",
    "queue:-0.5,uniform:1.5:100": "is no number",
    "queue:0,uniform:1:100": "the share of queue must be above 0 and at most 1, not 0",
    "queue:0.5,uniform:1.5:100": "the share of uniform must be above 0 and at most 1, not 1.5",
    "queue:0.5,uniform:0.4:100": "the shares sum to 0.9, and must sum to 1",
    "queue:1/3,uniform:0.333:100": "the shares sum to 0.666333333",
    "queue:0.5, uniform:0.5:100": "there is no table ' uniform'",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_mix_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_mix(text)
    assert WRONG[text] in str(caught.value) and "\n" not in str(caught.value)


@given(st.text(alphabet="queuniform:,/.0123456789-\n ", max_size=40))
def test_any_text_is_a_mix_or_refused_in_one_line(text: str) -> None:
    try:
        assert sum(part.share for part in parse_mix(text)) == 1
    except ValueError as error:
        assert "\n" not in str(error)


def test_a_batch_that_cannot_be_cut_names_those_that_can() -> None:
    with pytest.raises(ValueError) as caught:
        counts(parse_mix("queue:0.25,uniform:0.75:100"), 6)
    assert str(caught.value) == ("1.5 sequences of a batch of 6 would come from queue: choose a batch size of 4 or 8")
    with pytest.raises(ValueError, match=r"choose a batch size of 7$"):
        counts(parse_mix(ALL), 4)
    with pytest.raises(ValueError, match=r"a batch of 14 takes 12 sequences of uniform, which holds 5"):
        counts(parse_mix("queue:1/7,uniform:6/7:5"), 14)


@given(st.lists(st.integers(1, 12), min_size=2, max_size=5), st.integers(1, 60))
def test_counts_are_whole_and_errors_name_what_works(weights: list[int], batch_size: int) -> None:
    tables = ("uniform:{}:100", "queue:{}", "elite:{}:200", "attentive:{}:300", "prioritised:{}:400")
    total = sum(weights)
    mix = parse_mix(",".join(t.format(f"{w}/{total}") for t, w in zip(tables, weights, strict=False)))
    try:
        numbers = counts(mix, batch_size)
    except ValueError as error:
        for size in str(error).rpartition("a batch size of ")[2].split(" or "):
            assert sum(counts(mix, int(size))) == int(size)
    else:
        assert sum(numbers) == batch_size and min(numbers) > 0
        assert [Fraction(number, batch_size) for number in numbers] == [part.share for part in mix]


def test_batches_shrink_by_the_smallest_whole_step() -> None:
    mix = parse_mix("queue:0.25,uniform:0.75:100")
    assert step(mix) == 4
    sizes = [12]
    while smaller := shrunk(mix, sizes[-1]):
        sizes.append(smaller)
    assert sizes == [12, 8, 4] and shrunk(mix, 4) is None


def test_room_for_what_tables_hold_together() -> None:
    mix = parse_mix(ALL)
    assert most_chunks(mix, 20, Sampling()) == 20 + 13 + 1, "the newest 13 are all that the tables hold"
    assert most_chunks(mix, 20, Sampling(elite_insertion=True)) == 20 + 11 + 13 + 1
    assert longest_held(mix, 20, Sampling()) == 20
    assert longest_held(mix, 20, Sampling(elite_insertion=True)) == 4 * 13
    assert most_chunks(parse_mix("queue:1"), 20, Sampling()) == 21

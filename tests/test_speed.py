"""The harness of the benchmarks, and how many bytes a transition takes on the wire."""

import statistics

from benchmarks.chunks import random_chunks
from benchmarks.harness import Comparison, Rate, Work, compare, table
from rainbow_iqn_apex.memory.messages import encode_message


def test_a_transition_takes_few_bytes() -> None:
    each = statistics.mean(len(encode_message(chunk)) / 64 for chunk in random_chunks("ms_pacman", 8))
    assert 20 < each <= 250


def test_a_ratio_is_taken_within_a_repeat() -> None:
    calls = {"first": 0, "second": 0}

    def work(name: str) -> Work:
        def count() -> None:
            calls[name] += 1

        return count

    measured = compare("x", "1/s", {name: work(name) for name in calls}, per_call=10, repeats=3, slice_s=0.01)
    assert [len(rate.ratios) for rate in measured.rates] == [3, 3]
    assert measured.rates[0].ratios == (1.0, 1.0, 1.0)
    for ours, first, found in zip(
        measured.rates[1].rates, measured.rates[0].rates, measured.rates[1].ratios, strict=True
    ):
        assert found == ours / first
    assert min(calls.values()) > 9


def test_the_table_shows_rates_ratios_and_what_was_wanted() -> None:
    rates = (
        Rate("limit", "1/s", (2000.0, 4000.0, 3000.0), (1.0, 1.0, 1.0)),
        Rate("ours", "1/s", (1500.0, 2000.0, 1800.0), (0.75, 0.5, 0.6)),
    )
    lines = table(Comparison("sample", rates, {"ours": 0.55})).splitlines()
    assert lines[2] == "| limit | 3,000 1/s | 1 (1 to 1) |  |"
    assert lines[3] == "| ours | 1,800 1/s | 0.6 (0.5 to 0.75) | 0.55 |"

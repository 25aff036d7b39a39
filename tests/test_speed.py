"""Nothing may become twice as slow: `benchmarks.gate`, and that it would notice."""

import pytest

from benchmarks.gate import MAX_BYTES, PARTS, bytes_each, ratios
from benchmarks.harness import Comparison, Rate, Work, compare, table


@pytest.mark.parametrize("name", PARTS)
def test_it_is_as_fast_as_it_was_and_twice_the_work_is_seen(name: str) -> None:
    part = PARTS[name]
    once, twice = ratios(part, (1, 2))
    assert twice < part.least <= once


def test_a_transition_takes_few_bytes() -> None:
    assert 20 < bytes_each() <= MAX_BYTES


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
